"""Walks a whole index: `python -m kvstored.store.index_probe PATH` exits 0 when it is sound.

A damaged LMDB map can end the process that reads it with SIGBUS, so after an unclean
stop this runs in a child process before the daemon opens the index. Single damaged
values do not make an index unsound: they are absent.
"""

import subprocess
import sys
from pathlib import Path

from kvstored.store.index import Index, IndexDamagedError, IndexFailure

PROBE_TIMEOUT_S = 900.0
EXIT_DAMAGED = 3
"""Exit status that tells damage from everything else that can go wrong."""
MAP_BYTES = 1024 * 1024
"""LMDB raises this to what the file needs."""


def probe(path: Path) -> int:
    """Walks the index in this process and returns the number of damaged values.

    Raises IndexFailure when it is unsound, if the process survives that.
    """
    index = Index.open(path, map_bytes=MAP_BYTES, readonly=True)
    try:
        return sum(1 for _ in index.damaged_entries())
    finally:
        index.close()


def probe_in_child(path: Path) -> None:
    """Walks the index in a child process.

    Raises IndexDamagedError when it is unsound, IndexFailure when nobody can tell.
    """
    command = [sys.executable, "-m", "kvstored.store.index_probe", str(path)]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise IndexFailure(
            f"looking through the index in {path} took longer than {PROBE_TIMEOUT_S:g} s; "
            "rebuild the index"
        ) from error
    if child.returncode < 0:
        raise IndexDamagedError(
            f"the index in {path} is damaged (signal {-child.returncode} while reading it); "
            "rebuild the index"
        )
    if child.returncode == EXIT_DAMAGED:
        raise IndexDamagedError(f"the index in {path} is damaged: {child.stderr.strip()}")
    if child.returncode > 0:
        raise IndexFailure(child.stderr.strip())


def main(arguments: list[str]) -> None:
    """Probes the one index that is named; exits with the reason when it is unsound."""
    if len(arguments) != 1:
        sys.exit("name exactly one index directory")
    try:
        probe(Path(arguments[0]))
    except IndexDamagedError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_DAMAGED)
    except IndexFailure as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
