"""``kvstored init``: writes a commented configuration for this machine."""

import argparse
import sys
from pathlib import Path

from kvstored.cli.errors import CommandError
from kvstored.doctor.machine import look_at_machine
from kvstored.doctor.places import look_at_device, look_at_folder
from kvstored.doctor.proposal import ProposalError, propose, text_of

STATE_FOLDER = Path("/var/lib/kvstored")
SOCKET_FOLDER = Path("/run/kvstored")


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument(
        "--device",
        type=Path,
        action="append",
        metavar="PATH",
        help="a block device, or a file to be made; once for each drive "
        f"(default: {STATE_FOLDER / 'device0'})",
    )
    verb.add_argument(
        "--index",
        type=Path,
        default=STATE_FOLDER / "index",
        metavar="PATH",
        help="folder of the index (default: %(default)s)",
    )
    verb.add_argument(
        "--sockets",
        type=Path,
        default=SOCKET_FOLDER,
        metavar="PATH",
        help="folder of the sockets (default: %(default)s)",
    )
    verb.add_argument("--force", action="store_true", help="also where the file exists")


def run(options: argparse.Namespace) -> int:
    """Writes the file that ``--config`` names; it never overwrites one unless forced."""
    path: Path = options.config
    devices: list[Path] = options.device or [STATE_FOLDER / "device0"]
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CommandError(f"there is no folder {folder} for {path}; make it, or name another file")
    if path.exists() and not options.force:
        raise CommandError(
            f"{path} exists; name another file with --config, or lose it with --force"
        )
    index = folder / options.index
    try:
        proposal = propose(
            look_at_machine(),
            [look_at_device(folder / device) for device in devices],
            index,
            index_free_bytes=look_at_folder(index).free_bytes,
        )
    except ProposalError as error:
        raise CommandError(str(error)) from error
    try:
        path.write_text(text_of(proposal, sockets=folder / options.sockets))
    except OSError as error:
        raise CommandError(
            f"cannot write {path}: {error.strerror}; name another --config"
        ) from error
    sys.stdout.write(
        f"{path} is written; look at it, then run kvstored doctor, kvstored format and "
        f"kvstored run, each with --config {path}\n"
    )
    return 0
