"""A container that systemd boots, over an overlay of everything that this machine has installed.

Needs root, systemd-nspawn and a loop device. What the container writes goes to a file system of
its own in a sparse file: ext4, because devices need O_DIRECT. It has no network, and control groups
of its own. Its systemd may write to those that limit memory and devices.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
CHECKOUT = "/srv/kvstored"
"""Where the container has a copy of this checkout."""
GROUPS = Path("/sys/fs/cgroup")
DISK_BYTES = 3 * 1024**3
"""Of the sparse file, which takes what is written to it."""
COMMAND_S = 1200
"""An installation on a busy machine takes long."""
HIERARCHIES = ("systemd", "unified", "memory", "devices")
"""Of version 1, in which the container has a group of its own where this machine has them."""
INIT = "/srv/init"
"""Its first process. systemd-nspawn mounts controllers of version 1 read-only: with these two its
systemd enforces what units say. Those of version 2 may be written to."""
INIT_LINES = """
for controller in memory devices; do
    [ ! -d /sys/fs/cgroup/$controller ] || mount -o remount,bind,rw /sys/fs/cgroup/$controller
done
exec /lib/systemd/systemd
"""
HALT = signal.SIGRTMIN + 4
"""What systemd takes as the order to power off."""


class CannotBootError(Exception):
    """This machine boots no container; one sentence says why."""


class Machine:
    """A booted container. ``root`` is its file system, ``name`` that of its control groups."""

    def __init__(self, root: Path, name: str, leader: int) -> None:
        self.root = root
        self.name = name
        self._leader = leader

    def run(
        self, *command: object, check: bool = True, has_network: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command inside; with the network of this machine where it installs something."""
        result = subprocess.run(
            self._inside(has_network) + [str(part) for part in command],
            capture_output=True,
            text=True,
            env=_environment(),
            timeout=COMMAND_S,
            check=False,
        )
        assert not check or result.returncode == 0, (command, result.stdout, result.stderr)
        return result

    def shell(self, script: str, *, has_network: bool = False) -> str:
        """Runs lines of a shell in the checkout, to the first that fails; what they wrote."""
        text = f"cd {CHECKOUT} && set -e\n{script}"
        return self.run("bash", "-c", text, has_network=has_network).stdout

    @contextlib.contextmanager
    def beside(self, *command: object) -> Iterator[subprocess.Popen[str]]:
        """A command that runs inside while the body does."""
        with subprocess.Popen(
            self._inside(has_network=False) + [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def write(self, path: str, text: str) -> None:
        """Writes a file inside, and its folder."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def outer_pid(self, pid: int) -> int:
        """What a process of the container is called out here."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                lines = dict(
                    line.split(":", maxsplit=1) for line in status.read_text().splitlines()
                )
                names = lines["NSpid"].split()
                if names[1:] == [str(pid)] and self._is_inside(status.parent):
                    return int(names[0])
        raise AssertionError(f"the container has no process {pid}")

    def _is_inside(self, process: Path) -> bool:
        own = Path(f"/proc/{self._leader}/ns/pid").readlink()
        return (process / "ns/pid").readlink() == own

    def _inside(self, has_network: bool) -> list[str]:
        namespaces = ["-m", "-p", "-i", "-u", "-C", *([] if has_network else ["-n"])]
        return ["nsenter", "-t", str(self._leader), *namespaces, "--"]


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Boots a container and takes everything away afterwards; raises CannotBootError."""
    _check()
    with contextlib.ExitStack() as undone:
        disk = undone.enter_context(_disk(folder))
        root = undone.enter_context(_overlay(disk))
        (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
        _copy_checkout(root / CHECKOUT.lstrip("/"))
        (root / INIT.lstrip("/")).write_text(INIT_LINES)
        name = f"kvstored-lab-{uuid.uuid4().hex}"
        groups = undone.enter_context(_groups(name))
        leader = undone.enter_context(_booted(root, groups, folder / "console"))
        booted = Machine(root, name, leader)
        wait_until(lambda: _is_up(booted), within_s=PATIENCE_S)
        yield booted


def _check() -> None:
    if os.getuid() != 0:
        raise CannotBootError("only root can boot a container")
    for program, package in (("systemd-nspawn", "systemd-container"), ("losetup", "mount")):
        if shutil.which(program) is None:
            raise CannotBootError(f"{program} is not installed ({package})")
    if not Path("/lib/systemd/systemd").exists():
        raise CannotBootError("systemd is not installed (systemd)")


def _call(*command: object) -> str:
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise CannotBootError(f"{command[0]} failed here: {result.stderr.strip()}")
    return result.stdout.strip()


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[Path]:
    """A mounted file system in a sparse file."""
    image, mounted = folder / "disk", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    try:
        _call("mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image)
        loop = _call("losetup", "--find", "--show", image)
        try:
            _call("mount", loop, mounted)
            try:
                yield mounted
            finally:
                _call("umount", mounted)
        finally:
            _call("losetup", "--detach", loop)
    finally:
        image.unlink()


@contextlib.contextmanager
def _overlay(disk: Path) -> Iterator[Path]:
    parts = [disk / name for name in ("upper", "work", "root")]
    for part in parts:
        part.mkdir()
    upper, work, root = parts
    options = f"lowerdir=/,upperdir={upper},workdir={work}"
    _call("mount", "-t", "overlay", "overlay", "-o", options, root)
    try:
        yield root
    finally:
        _call("umount", root)


@contextlib.contextmanager
def _groups(name: str) -> Iterator[list[Path]]:
    """A control group in each hierarchy that the container may have."""
    hierarchies = [GROUPS / part for part in HIERARCHIES]
    if (GROUPS / "cgroup.controllers").exists():
        hierarchies = [GROUPS]
    groups = [folder / name for folder in hierarchies if folder.is_dir()]
    try:
        for group in groups:
            group.mkdir()
    except OSError as error:
        raise CannotBootError(f"no control group can be made: {error}") from error
    try:
        yield groups
    finally:
        for group in groups:
            _remove_group(group)


def _remove_group(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        wait_until(partial(_removed, Path(folder)), within_s=PATIENCE_S)


def _removed(folder: Path) -> bool:
    """Whether a group is gone; its last processes may still be on their way out."""
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


@contextlib.contextmanager
def _booted(root: Path, groups: list[Path], console: Path) -> Iterator[int]:
    """The process that is the first one inside."""
    enter = "".join(f"echo $$ > {group}/cgroup.procs && " for group in groups)
    command = (
        f"exec systemd-nspawn -q -D {root} --register=no --keep-unit --private-network "
        # With version 2 a program of the kernel (BPF) guards devices.
        f"--console=pipe --resolv-conf=off --system-call-filter=bpf /bin/sh {INIT}"
    )
    with (
        console.open("wb") as output,
        subprocess.Popen(
            ["sh", "-c", enter + command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or _init(process.pid) is not None)
            leader = _init(process.pid)
            if leader is None:
                raise CannotBootError(f"systemd-nspawn ended: {console.read_text().strip()}")
            yield leader
        finally:
            _halt(process)


def _init(supervisor: int) -> int | None:
    """The container's first process, once it is systemd: nspawn has others before it."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        for child in map(int, children):
            if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return child
    return None


def _halt(process: subprocess.Popen[bytes]) -> None:
    leader = _init(process.pid)
    if leader is None:
        process.kill()
        return
    os.kill(leader, HALT)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        # Its end is that of the container.
        os.kill(leader, signal.SIGKILL)
        process.wait(PATIENCE_S)


def _copy_checkout(folder: Path) -> None:
    """Everything but what git ignores."""
    folder.mkdir(parents=True)
    listed = _call("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
    for name in filter(lambda name: (ROOT / name).is_file(), listed.splitlines()):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


def _is_up(booted: Machine) -> bool:
    time.sleep(0.1)
    state = booted.run("systemctl", "is-system-running", check=False).stdout.strip()
    return state in ("running", "degraded")


def _environment() -> Mapping[str, str]:
    """What pip needs to find packages as it does out here, and nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**kept, "PATH": path, "HOME": "/", "LANG": "C.UTF-8"}
