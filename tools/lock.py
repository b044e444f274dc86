"""Write requirements.txt, the lock, from the ranges in pyproject.toml.

    pip install uv && python tools/lock.py            keep the versions that still fit
    pip install uv && python tools/lock.py --upgrade  take the newest ones

One file serves Linux, macOS and Windows on Python 3.11 and later: uv resolves for all of them at once and
writes environment markers where they differ.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# The exact versions that the course is tested with, for Linux, macOS and Windows, Python 3.11 or later.
# Made from pyproject.toml by:  pip install uv && python tools/lock.py
# CUDA's own libraries are left out: torch asks for them itself where its CUDA build is installed.
"""
COMPILE = [
    *("-m", "uv", "--quiet", "pip", "compile", "pyproject.toml", "--extra=test"),
    *("--universal", "--python-version=3.11"),
    *("--no-header", "--no-annotate", "--no-emit-index-url", "--output-file=requirements.txt"),
]
# What only torch's CUDA build for Linux needs: gigabytes that a CPU-only machine must not be made to fetch.
CUDA = re.compile(r"(nvidia|cuda)-|triton==")


def without_cuda(lock: str) -> str:
    """Drop the lines of `lock` that pin CUDA's libraries."""
    return "".join(line for line in lock.splitlines(keepends=True) if not CUDA.match(line))


def main(options: list[str]) -> None:
    """Resolve, then rewrite requirements.txt; the project itself comes last, editable."""
    subprocess.run([sys.executable, *COMPILE, *options], cwd=ROOT, check=True)
    path = ROOT / "requirements.txt"
    path.write_text(HEADER + without_cuda(path.read_text()) + "-e .\n", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
