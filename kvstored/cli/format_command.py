"""``kvstored format``: makes the configured devices a new, empty device set."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kvstored.cli.errors import CommandError
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, progress_bar, write_report
from kvstored.config import load_config
from kvstored.store.index.aside import UNFINISHED_FILE
from kvstored.store.index.damage_mark import DAMAGE_FILE
from kvstored.store.index.environment import DATA_FILE, LOCK_FILE
from kvstored.store.index.index_lock import IndexLock
from kvstored.store.index.service import CLEAN_FILE
from kvstored.store.index.snapshot import SNAPSHOT_FILE
from kvstored.store.space.device_set import format_device_set

INDEX_FILES = (CLEAN_FILE, SNAPSHOT_FILE, DATA_FILE, LOCK_FILE, DAMAGE_FILE, UNFINISHED_FILE)


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument(
        "--force", action="store_true", help="also where devices hold data, which is lost"
    )
    add_json_option(verb)


def check_folders(devices: Sequence[Path], config: Path) -> None:
    """Raises CommandError for a device in a folder that does not exist."""
    for device in devices:
        if not device.parent.is_dir():
            raise CommandError(
                f"{device} cannot be made: there is no folder {device.parent}; make it, or correct "
                "store.devices, whose relative paths are relative to the folder of the "
                f"configuration file, {config.absolute().parent}"
            )


def run(options: argparse.Namespace) -> int:
    """Formats every device of ``[store]``; a daemon that uses one, or the index, keeps it busy."""
    store = load_config(options.config).store
    check_folders(store.devices, options.config)
    if not options.force and (store.index / DATA_FILE).exists():
        raise CommandError(
            f"{store.index} holds the index of a store; format with --force to lose it, or name "
            "another place in store.index"
        )
    # What comes there meanwhile is another daemon's.
    has_index = store.index.is_dir()
    with ExitStack() as locked:
        if has_index:
            locked.enter_context(IndexLock(store.index))
        with progress_bar("reserving", unit_bytes=True) as progress:
            set_id = format_device_set(
                store.devices,
                device_bytes=store.device_bytes,
                slab_bytes=store.slab_bytes,
                force=options.force,
                progress=progress,
            )
        # Only now: had a daemon been running, its devices would have been busy.
        for name in INDEX_FILES if has_index else ():
            (store.index / name).unlink(missing_ok=True)
    report = Report(
        title=f"device set {set_id.hex()}",
        columns=("device", "bytes"),
        rows=[(str(device), int(store.device_bytes)) for device in store.devices],
        values={"set_id": set_id.hex(), "slab_bytes": int(store.slab_bytes)},
    )
    write_report(report, as_json=options.json)
    return 0
