"""Block devices for the container: loop devices of this machine, by names as drives have them."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.systemd.machine import Machine

DRIVE_BYTES = 544 * 1024**2
BY_ID = "/dev/disk/by-id"


@contextlib.contextmanager
def drive(found: Machine, image: Path) -> Iterator[str]:
    """The name of a block device of the group ``disk``, with the bytes of a new sparse file."""
    with image.open("wb") as file:
        file.truncate(DRIVE_BYTES)
    try:
        loop = _called("losetup", "--find", "--show", str(image))
        try:
            yield from _shown(found, Path(loop), f"{BY_ID}/{image.name}")
        finally:
            _called("losetup", "--detach", loop)
    finally:
        image.unlink()


def _shown(found: Machine, loop: Path, name: str) -> Iterator[str]:
    """Makes the node in the container, whose /dev is its own, while its user has it."""
    major, minor = _called("stat", "--format=%Hr %Lr", str(loop)).split()
    found.shell(
        f"rm -f {loop}\nmknod --mode=660 {loop} b {major} {minor}\nchgrp disk {loop}\n"
        f"mkdir -p {BY_ID}\nln -sf {loop} {name}"
    )
    try:
        yield name
    finally:
        found.run("rm", name, loop)


def _called(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
