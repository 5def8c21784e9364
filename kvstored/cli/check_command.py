"""``kvstored check``: verifies every stored byte while no daemon runs. Changes nothing."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvstored.cli.errors import EXIT_FAILED, CommandError
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, progress_bar, write_report
from kvstored.config import Config, load_config
from kvstored.store.check.check_report import CheckReport
from kvstored.store.check.offline_check import check_store
from kvstored.store.index.index import DATA_FILE, Index
from kvstored.store.index.probe import probe_in_child
from kvstored.store.space.device_set import DeviceSet, open_device_set


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """0 when the store is sound, 1 when it is not."""
    config = load_config(options.config)
    with opened(config) as (index, device_set), progress_bar("checking") as progress:
        report = check_store(index, device_set, progress)
    write_report(report_of(report), as_json=options.json)
    return 0 if report.is_sound else EXIT_FAILED


def _is_there(path: Path) -> bool:
    """Whether a file is there, or something is in the way that opening it says better."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


@contextmanager
def opened(config: Config) -> Iterator[tuple[Index, DeviceSet]]:
    """Devices and index for reading; the devices' locks keep a daemon out meanwhile."""
    device_set = open_device_set(config.store.devices, readonly=True)
    try:
        if not _is_there(config.store.index / DATA_FILE):
            raise CommandError(
                f"there is no index in {config.store.index} yet; the next start builds it from the "
                "devices"
            )
        # A damaged index can end the process that opens it.
        probe_in_child(config.store.index)
        index = Index.open(
            config.store.index, map_bytes=config.store.index_map_bytes, readonly=True
        )
        try:
            yield index, device_set
        finally:
            index.close()
    finally:
        device_set.close()


def report_of(report: CheckReport) -> Report:
    """Problems as rows."""
    title = "the store is sound" if report.is_sound else f"{report.problem_count} problems"
    return Report(
        title=title,
        values={
            "sound": report.is_sound,
            "chunk_count": report.chunk_count,
            "verified_bytes": report.verified_bytes,
            "problem_count": report.problem_count,
        },
        columns=("kind", "where", "what"),
        rows=[(problem.kind.value, problem.where, problem.what) for problem in report.problems],
    )
