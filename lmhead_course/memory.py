"""How much memory is left, so that a step too large for it says so in words. A kernel that runs out is only killed.

Linux tells: what the machine has, and what a container (Docker, Binder, JupyterHub) may use of it, which is often far
less. Elsewhere nothing is known, and nothing is refused.
"""

import re
from pathlib import Path

UNCHECKED = 64 << 20  # bytes; smaller steps are not worth a look
PROCESS_BYTES = 200_000_000  # what a fresh Python with torch takes


def require_memory(needed: int, what: str, *, root: Path = Path("/")) -> None:
    """Raise ``MemoryError`` if ``needed`` bytes are more than is left; ``what`` names the step that needs them."""
    if needed < UNCHECKED:
        return
    left = memory_left(root)
    if left is not None and needed > left:
        raise MemoryError(
            f"{what} needs about {needed / 1e6:,.0f} MB of memory, and {max(left, 0) / 1e6:,.0f} MB are left. "
            "Shut down the kernels of other notebooks (in JupyterLab: Kernel → Shut Down All Kernels, then open this "
            "one again), or ask for less at once"
        )


def memory_left(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process may still take, or None where that is not known.

    The smallest of what the machine has available and what each control group that the process is in, or that one is
    in, has left. Pages of files (the model's weights are one) count as free: the kernel drops them when it needs room.
    Swap counts as well, so that no step that would have worked is refused.
    """
    machine = _fields(root / "proc/meminfo")
    if "MemAvailable" not in machine:
        return None
    swap = 1024 * machine.get("SwapFree", 0)
    left = [1024 * machine["MemAvailable"] + swap]
    for folder, version in _groups(root):
        room = _room(folder, version)
        left += [] if room is None else [room + swap]
    return min(left)


def _groups(root: Path) -> list[tuple[Path, int]]:
    """Return the folders of this process's control groups for memory, up to the top, with the version of each."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "" or "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            # Inside a container the path may be the one outside; its own group is then at the top.
            parts = [part for part in path.split("/") if part not in ("", "..")]
            places = [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
            found += [(place, 1 if controllers else 2) for place in places]
    return found


def _room(folder: Path, version: int) -> int | None:
    """Return what one group has left, None where it has no limit."""
    names = (
        ("memory.max", "memory.current")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    limit, used = (_text(folder / name).strip() for name in names)
    if not (limit.isdigit() and used.isdigit()):  # "max", or no such file
        return None
    counted = _fields(folder / "memory.stat")
    prefix = "" if version == 2 else "total_"
    files = sum(counted.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
    return int(limit) - int(used) + files


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of lines such as ``MemAvailable:  12 kB``, by their names."""
    return {name: int(number) for name, number in re.findall(r"^(\w+):?\s+(\d+)", _text(path), re.MULTILINE)}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
