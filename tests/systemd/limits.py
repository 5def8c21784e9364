"""What the kernel says of the memory of the service, and whether it limits anything here."""

import subprocess
from pathlib import Path

from tests.systemd.machine import GROUPS, Machine
from tests.systemd.service import UNIT, shown

PROBE = "/run/systemd/system/probe.service"
"""A unit that may read no device but those that all may."""


def no_limits_of_memory(found: Machine) -> str | None:
    """Why systemd limits no memory in the container; None where it does."""
    if (GROUPS / "memory").is_dir():
        return _read_only(found, "memory")
    if "memory" in found.run("cat", GROUPS / "cgroup.controllers").stdout.split():
        return None
    return "the container's control groups have no controller named memory"


def no_guard_of_devices(found: Machine, device: str) -> str | None:
    """Why systemd keeps no unit from ``device`` in the container; None where it does."""
    if (GROUPS / "devices").is_dir():
        return _read_only(found, "devices")
    # Version 2 has no controller for them: systemd asks the kernel for a program (BPF).
    found.shell(
        f"printf '%s\\n' [Service] Type=oneshot DevicePolicy=closed 'ExecStart=/usr/bin/head "
        f"--bytes=1 {device}' > {PROBE}\nsystemctl daemon-reload"
    )
    is_read = not found.run("systemctl", "start", Path(PROBE).name, check=False).returncode
    found.shell(f"rm {PROBE}\nsystemctl daemon-reload\nsystemctl reset-failed")
    return "the kernel takes no program (BPF) that guards devices" if is_read else None


def _read_only(found: Machine, controller: str) -> str | None:
    """A read-only file system refuses root as well."""
    if not found.run("test", "-w", GROUPS / controller, check=False).returncode:
        return None
    return f"the container's systemd may not write to the controller named {controller}"


def used_bytes(found: Machine) -> int:
    """What the unit takes now, page cache included."""
    return int(_group_file(found, "memory.usage_in_bytes", "memory.current"))


def limit_bytes(found: Machine) -> int:
    """What the kernel lets it take."""
    return int(_group_file(found, "memory.limit_in_bytes", "memory.max"))


def kill_count(found: Machine) -> int:
    """How many processes of the unit the kernel has killed at the limit since it was started."""
    text = _group_file(found, "memory.oom_control", "memory.events")
    return int(dict(line.split() for line in text.splitlines())["oom_kill"])


def killed_names(found: Machine) -> list[str]:
    """Names of all processes of the unit that the kernel has killed at its limit, ever."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in log.splitlines() if "oom-kill:" in line and found.name in line]
    return [line.split(",task=")[1].split(",")[0] for line in lines if UNIT in line]


def _group_file(found: Machine, of_version_1: str, of_version_2: str) -> str:
    unit = shown(found, "ControlGroup").lstrip("/")
    if (GROUPS / "memory").is_dir():
        return found.run("cat", GROUPS / "memory" / unit / of_version_1).stdout
    return found.run("cat", GROUPS / unit / of_version_2).stdout
