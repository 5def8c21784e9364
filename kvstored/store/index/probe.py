"""Looks through a whole index in a process of its own: `python -m kvstored.store.index.probe PATH`.

A damaged LMDB map can end the process that reads it with SIGBUS, so after an unclean
stop a child does this before the daemon opens the index. It exits 0 when the index is
sound; single damaged values do not make it unsound: they are absent. With ``--claims``
it writes what the records claim to its output, so that nobody walks a second time.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import lmdb

from kvstored.format.errors import FormatError
from kvstored.store.index.damage_mark import refuse_marked
from kvstored.store.index.entry import Table
from kvstored.store.index.index import DATA_FILE, Index, IndexDamagedError, IndexFailure
from kvstored.store.index.page_walk import check_pages
from kvstored.store.index.scan import Scanned, scan_chunks
from kvstored.store.space.claim_block import ClaimBlock
from kvstored.store.space.claim_stream import ClaimWriter, PartKind, decode_damaged_keys, read_parts

PROBE_TIMEOUT_S = 900.0
EXIT_DAMAGED = 3
"""Exit status that tells damage from everything else that can go wrong."""
MAP_BYTES = 1024 * 1024
"""LMDB raises this to what the file needs."""
PAGES_KNOWN_OF = (0, 9)
"""Major and minor version of the LMDB whose pages ``index_page_format`` reads."""
PAGES_KNOWN_ON = ("little", 2**63 - 1)
MACHINE = (sys.byteorder, sys.maxsize)
_SIGNALS_OF_DAMAGE = frozenset(
    (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
)
"""What reading a damaged map can end in; every other signal was sent by somebody."""
_CLAIMS_OPTION = "--claims"
_PIPE_BYTES = 1024 * 1024
_READ_AHEAD_BYTES = 8 * 1024 * 1024

OnScanned = Callable[[Scanned], None]
"""Gets what the chunk table holds, part by part."""


def probe(path: Path, on_scanned: OnScanned = lambda _: None) -> int:
    """Walks the index in this process and returns the number of damaged values.

    Its pages first, also those that only a write would meet. Raises IndexFailure when it is
    unsound, if the process survives that.
    """
    refuse_marked(path)
    # Of another LMDB's pages, and those of other machines, nothing is known here.
    if lmdb.version()[:2] == PAGES_KNOWN_OF and MACHINE == PAGES_KNOWN_ON:
        # LMDB says better why a file cannot be opened.
        with suppress(OSError):
            check_pages(path / DATA_FILE)
    index = Index.open(path, map_bytes=MAP_BYTES, readonly=True)
    try:
        others = [table for table in Table if table is not Table.CHUNKS]
        damaged_count = sum(1 for _ in index.walks.damaged_entries(others))
        for scanned in scan_chunks(index.walks):
            damaged_count += len(scanned.damaged_keys)
            on_scanned(scanned)
        return damaged_count
    finally:
        index.close()


def probe_in_child(path: Path, on_scanned: OnScanned | None = None) -> None:
    """Walks the index in a child process.

    What ``on_scanned`` got counts only when this returns. Raises IndexDamagedError
    when the index is unsound, IndexFailure when nobody can tell.
    """
    command = [sys.executable, "-m", "kvstored.store.index.probe", str(path)]
    if on_scanned is not None:
        command.append(_CLAIMS_OPTION)
    is_late = threading.Event()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=_PIPE_BYTES
    ) as child:
        assert child.stdout is not None

        def end() -> None:
            is_late.set()
            child.kill()

        timer = threading.Timer(PROBE_TIMEOUT_S, end)
        timer.start()
        try:
            is_whole = on_scanned is None or _receive(child.stdout, on_scanned)
            _, errors = child.communicate()
        except BaseException:
            child.kill()
            raise
        finally:
            timer.cancel()
    if is_late.is_set():
        raise IndexFailure(
            f"looking through the index in {path} took longer than {PROBE_TIMEOUT_S:g} s; "
            "rebuild the index"
        )
    _judge(path, child.returncode, errors.decode(errors="replace").strip())
    if not is_whole:
        raise IndexFailure(f"what was found in the index in {path} did not arrive whole; try again")


def main(arguments: list[str]) -> None:
    """Probes the one index that is named; exits with the reason when it is unsound."""
    paths = [argument for argument in arguments if argument != _CLAIMS_OPTION]
    if len(paths) != 1:
        sys.exit("name exactly one index directory")
    path = Path(paths[0])
    try:
        if _CLAIMS_OPTION in arguments:
            _send(path, sys.stdout.buffer)
        else:
            probe(path)
    except IndexDamagedError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_DAMAGED)
    except IndexFailure as error:
        sys.exit(str(error))


def _judge(path: Path, status: int, errors: str) -> None:
    """Raises what the exit status of a child says of the index."""
    if -status in _SIGNALS_OF_DAMAGE:
        raise IndexDamagedError(
            f"the index in {path} is damaged (signal {-status} while reading it); rebuild the index"
        )
    if status < 0:
        raise IndexFailure(
            f"looking through the index in {path} was ended by signal {-status}; try again"
        )
    if status == EXIT_DAMAGED:
        raise IndexDamagedError(f"the index in {path} is damaged: {errors}")
    if status > 0:
        raise IndexFailure(errors)


def _send(path: Path, output: IO[bytes]) -> None:
    """Walks the index and writes what its chunk table holds."""
    writer = ClaimWriter(output)

    def write(scanned: Scanned) -> None:
        writer.claims(scanned.claims)
        writer.damaged_keys(scanned.damaged_keys)

    ahead = threading.Thread(target=_read_ahead, args=(path / DATA_FILE,), daemon=True)
    ahead.start()
    probe(path, write)
    writer.end()
    output.flush()


def _receive(stream: IO[bytes], on_scanned: OnScanned) -> bool:
    """Hands out what ``_send`` writes; whether it was whole."""
    try:
        for kind, payload in read_parts(stream):
            if kind is PartKind.CLAIMS:
                on_scanned(Scanned(claims=ClaimBlock.decode(payload), damaged_keys=[]))
            else:
                keys = decode_damaged_keys(payload)
                on_scanned(Scanned(claims=ClaimBlock.empty(), damaged_keys=keys))
    except FormatError:
        return False
    return True


def _read_ahead(path: Path) -> None:
    """Asks for the whole file in its order: the walk jumps about in it.

    Whatever is wrong with the file, the walk says it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for start in range(0, os.fstat(descriptor).st_size, _READ_AHEAD_BYTES):
            os.posix_fadvise(descriptor, start, _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1:])
