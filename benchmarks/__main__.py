"""Every benchmark, one after the other: ``python -m benchmarks``. Each can be run alone, ``python -m benchmarks.NAME``.

Run it on a machine that does nothing else. It exits with 1 if one of them misses its goal. With ``--write`` what they
print also goes into docs/benchmarks.md; with names, only these run, and the page keeps what it has of the others.
"""

import importlib
import subprocess
import sys
from pathlib import Path

NAMES = ("samplers", "sliders", "linear_cross_entropy", "generation", "startup", "browser_latency", "memory")
"""Those that compare or bound something; ``strategies`` and ``tying`` make the tables that notebooks show, and
``classroom`` needs a hub."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
INTRO = """# Benchmarks, as they were measured

Written by `python -m benchmarks --write`, on two shared cores without a GPU. Another machine gives other times; the
ratios should be near these. Where a goal is missed it says so, and what bounds the rest.
"""


def run(name: str) -> tuple[int, str]:
    """Run one in a process of its own; return its exit status and what it printed, which is shown as it comes."""
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def section(name: str, missed: int, printed: str) -> str:
    """Return what the page says of one benchmark."""
    about = importlib.import_module(f"benchmarks.{name}").__doc__.split("\n\nRun ")[0].replace("``", "`")
    verdict = "\nA goal was missed.\n" if missed else ""
    return f"\n## {name}\n\n{about}\n\n```\n$ python -m benchmarks.{name}\n{printed.rstrip()}\n```\n{verdict}"


def written(page: str, sections: dict[str, str]) -> str:
    """Return the page with these sections in place of the ones it has, in the order of ``NAMES``."""
    for part in page.split("\n## ")[1:]:
        sections.setdefault(part.split("\n", 1)[0], "\n## " + part)
    return INTRO + "".join(sections[name] for name in NAMES if name in sections)


def main() -> int:
    """Run them all and return 1 if any failed."""
    failed, sections = [], {}
    for name in [name for name in sys.argv[1:] if name in NAMES] or NAMES:
        print(f"\n=== {name}", flush=True)
        missed, printed = run(name)
        failed += [name] if missed else []
        sections[name] = section(name, missed, printed)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), sections), encoding="utf-8")
    print(f"\nmissed their goal: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
