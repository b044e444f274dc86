"""Every benchmark, one after the other: ``python -m benchmarks``. Each can be run alone, ``python -m benchmarks.NAME``.

Run it on a machine that does nothing else. It exits with 1 if one of them misses its goal.
"""

import subprocess
import sys

NAMES = ("sliders", "startup", "browser_latency", "memory", "linear_cross_entropy")
"""Those that compare or bound something; ``strategies`` and ``tying`` make the tables that notebooks show."""


def main() -> int:
    """Run them all, each in a process of its own, and return 1 if any failed."""
    failed = []
    for name in NAMES:
        print(f"\n=== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode:
            failed.append(name)
    print(f"\nmissed their goal: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
