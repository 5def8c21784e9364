"""How much memory the control group of this process still grants.

Beyond the limit of a group the kernel does not refuse memory, it kills. So code that
takes much at once has to ask first. Pure but for reading files of the system.
"""

from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def group_room_bytes(groups: Path = _GROUPS, own_groups: Path = _OWN_GROUPS) -> int | None:
    """Bytes that this process may still take; None where no group limits it.

    Page cache counts as room, because the kernel gives it up first.
    """
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:
        return None
    rooms = []
    for line in lines:
        _, controllers, path = line.split(":", maxsplit=2)
        root = groups if not controllers else groups / "memory"
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            room = _room_of_v1(group) if controllers else _room_of_v2(group)
            rooms += [] if room is None else [room]
            if group == root:
                break
    return min(rooms, default=None)


def _room_of_v1(group: Path) -> int | None:
    return _room(
        group,
        limit="memory.limit_in_bytes",
        usage="memory.usage_in_bytes",
        cache=("total_active_file", "total_inactive_file"),
    )


def _room_of_v2(group: Path) -> int | None:
    return _room(
        group,
        limit="memory.max",
        usage="memory.current",
        cache=("active_file", "inactive_file"),
    )


def _room(group: Path, *, limit: str, usage: str, cache: tuple[str, ...]) -> int | None:
    """Room of one group; None when it has no limit or tells nothing."""
    try:
        limit_bytes = int((group / limit).read_text())
        used_bytes = int((group / usage).read_text())
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached_bytes = sum(int(fields[name]) for name in cache)
    except (OSError, KeyError, ValueError):
        return None
    return max(0, limit_bytes - used_bytes + cached_bytes)
