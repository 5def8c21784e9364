"""What a hostile client does to the memory and the descriptors that it shares with the daemon.

Fails when ``slice_sums`` sums the slices in the arena instead of the copy (seen: a chunk that was
put is damaged after a restart), when ``ReadProgress._retire`` trusts the board's FINISHED (seen:
the read of a scribbled board never ends, and its arena stays), when ``Bell.ring`` writes the
eventfd itself (seen: every call runs into its deadline), when ``Bell.close`` reads it without
RWF_NOWAIT (seen: that thread stays), when an arena has no seals (seen: ftruncate succeeds), and
when ``Session.begin_close`` does not cancel the reads (seen: the arena stays while they go on).
"""

import contextlib
import ctypes
import os
import random
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from kvstored.server.held.bell import Bell
from kvstored_client import Client, Placement
from kvstored_contract.board import WORD_BYTES, BoardWord, Watch
from tests.faults.clients.board_scribbler import BoardScribbler
from tests.faults.clients.raw_session import ARENA_BYTES, RawSession, raw_method
from tests.faults.clients.requests import (
    CHUNK_BYTES,
    LAYOUT,
    STORE,
    hostile_key,
    must,
    put_of,
    read_of,
    register,
)
from tests.faults.clients.test_messages import check_log
from tests.faults.clients.witness import Witness
from tests.faults.memory.process import ProcessState, settled_state, state_when_back
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.descriptors import open_descriptors
from tests.support.scale import Scale, at
from tests.support.seeds import seed
from tests.support.waiting import PATIENCE_S, wait_until

KEYS = [hostile_key(number) for number in range(8)]
BOARD = ARENA_BYTES - 8192
READS = 150
READ_TIMES = 48
FULL = 2**64 - 2


@pytest.fixture
def before(served: DaemonProcess) -> ProcessState:
    """The idle daemon, when its pools have their threads."""
    with contextlib.ExitStack() as sessions:
        for _ in range(4):
            session = sessions.enter_context(RawSession(served.socket_path))
            register(session)
            must(session.call(STORE + "Put", put_of(KEYS)))
    return settled_state(served.pid)


def check_returned(daemon: DaemonProcess, before: ProcessState) -> None:
    """The session's arena goes when its last transfer is over, so all of them were."""
    after = state_when_back(daemon.pid, before, timeout_s=PATIENCE_S)
    assert after.is_back_at(before), (before, after)
    check_log(daemon)


def clear_board(session: RawSession, watch: Watch = Watch.NOTHING) -> None:
    session.arena[BOARD : BOARD + 4096] = bytes(4096)
    word = BOARD + WORD_BYTES * BoardWord.WATCHED
    session.arena[word : word + WORD_BYTES] = struct.pack("<Q", watch)


def is_finished(session: RawSession) -> bool:
    word = BOARD + WORD_BYTES * BoardWord.FINISHED
    return session.arena[word] == 1


def test_a_board_that_is_scribbled_on_harms_its_own_read_only(
    served: DaemonProcess, before: ProcessState
) -> None:
    source = random.Random(seed())
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session)
        scribbler = BoardScribbler(
            memoryview(session.arena),
            offset=BOARD,
            chunk_count=len(KEYS),
            layer_count=LAYOUT.layer_count,
            source=source,
        )
        with scribbler:
            for _ in range(READS):
                must(session.call(STORE + "Read", read_of(KEYS, board_offset=BOARD)))
        del scribbler
    check_returned(served, before)


def test_a_board_inside_the_destination_of_its_read(
    served: DaemonProcess, before: ProcessState
) -> None:
    """The daemon overwrites its own words with payload, and ends the read all the same."""
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session)
        for offset in range(0, CHUNK_BYTES, 4096):
            must(session.call(STORE + "Read", read_of(KEYS, board_offset=offset)))
    check_returned(served, before)


def test_a_slot_that_is_rewritten_while_it_is_put_is_one_snapshot(daemon: DaemonProcess) -> None:
    """The checksums are those of the bytes that were stored, whichever these are."""
    source = np.random.default_rng(seed())
    keys = [hostile_key(1000 + number) for number in range(24)]
    is_over = threading.Event()
    with RawSession(daemon.socket_path) as session:
        register(session)
        patterns = [source.bytes(CHUNK_BYTES) for _ in range(4)]

        def rewrite(slot: memoryview) -> None:
            with slot:
                while not is_over.is_set():
                    for pattern in patterns:
                        slot[:] = pattern

        writer = threading.Thread(target=rewrite, args=(memoryview(session.arena)[:CHUNK_BYTES],))
        writer.start()
        try:
            for key in keys:
                must(session.call(STORE + "Put", put_of([key])))
        finally:
            is_over.set()
            writer.join()
    in_dram = contents(daemon, keys)
    daemon.restart()
    assert contents(daemon, keys) == in_dram
    assert daemon.terminate() == 0
    check = daemon.run_verb("check", "--json")
    assert check.returncode == 0, check.stdout


def contents(daemon: DaemonProcess, keys: list[bytes]) -> list[bytes]:
    """What is read under each key; fails when one does not verify."""
    found = []
    with Client(daemon.socket_path, arena_bytes="1MiB", strict=True) as client:
        region = client.allocate(CHUNK_BYTES)
        assert region is not None
        for key in keys:
            with client.read(LAYOUT, [key], Placement.contiguous(region, LAYOUT)) as read:
                assert read.wait().resident == (True,)
            found.append(bytes(region.view))
    return found


def test_an_eventfd_that_blocks_holds_up_nobody(
    served: DaemonProcess, before: ProcessState
) -> None:
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session)
        os.set_blocking(session.eventfd, True)
        os.eventfd_write(session.eventfd, FULL)
        for _ in range(20):
            clear_board(session, Watch.PROGRESS)
            must(session.call(STORE + "Read", read_of(KEYS, board_offset=BOARD)))
            wait_until(lambda: is_finished(session))
    check_returned(served, before)


def test_an_eventfd_that_is_emptied_while_its_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: the thread that frees a held bell could then be held itself, for ever."""
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    bell = Bell()
    client = os.dup(bell.descriptor)
    os.set_blocking(client, True)
    os.eventfd_write(client, FULL)
    bell.ring()
    wait_until(lambda: bell._is_writing)
    dup = os.dup

    def empty_twice(descriptor: int) -> int:
        """The client reads what holds the write, and then what was written."""
        os.eventfd_read(client)
        os.eventfd_read(client)
        return dup(descriptor)

    monkeypatch.setattr("kvstored.server.held.bell.os.dup", empty_twice)
    bell.close()
    os.close(client)
    wait_until(lambda: not set(threading.enumerate()) - threads)
    assert open_descriptors() - descriptors == set()


def test_descriptors_that_are_changed_and_closed(
    served: DaemonProcess, before: ProcessState
) -> None:
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session)
        os.fchmod(session.descriptors[0], 0)
        for byte_count in (0, 4096, ARENA_BYTES - 4096, 2 * ARENA_BYTES):
            with pytest.raises(PermissionError):
                os.ftruncate(session.descriptors[0], byte_count)
        for descriptor in session.descriptors:
            os.close(descriptor)
        session.descriptors = []
        for number in range(20):
            must(session.call(STORE + "Put", put_of([hostile_key(2000 + number)])))
            clear_board(session)
            must(session.call(STORE + "Read", read_of(KEYS, board_offset=BOARD)))
            wait_until(lambda: is_finished(session))
    check_returned(served, before)


def test_an_arena_with_holes_punched_into_it(served: DaemonProcess, before: ProcessState) -> None:
    """The seals keep the size, not the pages: a client can give them back to the system."""
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size_punch_hole = 0x01 | 0x02
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session)
        for number in range(20):
            must(session.call(STORE + "Put", put_of([hostile_key(3000 + number)])))
            clear_board(session)
            must(session.call(STORE + "Read", read_of(KEYS, board_offset=BOARD)))
            result = libc.fallocate(
                session.descriptors[0],
                keep_size_punch_hole,
                ctypes.c_long(0),
                ctypes.c_long(BOARD),
            )
            assert result == 0, os.strerror(ctypes.get_errno())
            wait_until(lambda: is_finished(session))
    check_returned(served, before)


@at(Scale.QUICK)
@pytest.mark.parametrize(
    ("method", "bytes_per_s"),
    # So that a put takes ten seconds, and a read a minute, if it went on.
    [("Put", MIB // 16), ("Read", MIB // 2)],
)
def test_a_session_that_ends_in_the_middle(tmp_path: Path, method: str, bytes_per_s: int) -> None:
    """Its transfers end, its arena goes, and what it was putting is whole or absent."""
    overrides: Overrides = {"io": {"device_bytes_per_s_max": bytes_per_s}}
    with DaemonProcess(tmp_path, overrides=overrides) as daemon:
        check_end_in_the_middle(daemon, method)


def check_end_in_the_middle(daemon: DaemonProcess, method: str) -> None:
    keys = [hostile_key(4000 + number) for number in range(32)]
    payload = np.random.default_rng(1).bytes(CHUNK_BYTES)
    with RawSession(daemon.socket_path) as session:
        register(session)
        session.arena[:CHUNK_BYTES] = payload
        if method == "Read":
            must(session.call(STORE + "Put", put_of(keys, chunk_stride=0)))
            daemon.restart()
    with RawSession(daemon.socket_path) as session:
        register(session)
    before = settled_state(daemon.pid)
    session = RawSession(daemon.socket_path)
    register(session)
    session.arena[:CHUNK_BYTES] = payload
    if method == "Put":
        body = put_of(keys, chunk_stride=0)
        with Client(daemon.socket_path, arena_bytes="1MiB", strict=True) as watcher:
            used = watcher.admin.stats().dram_used_bytes
            future = raw_method(session.channel, STORE + "Put").future(
                body, metadata=(("kvstored-token", session.welcome.token),), timeout=PATIENCE_S
            )
            wait_until(lambda: watcher.admin.stats().dram_used_bytes > used)
        assert not future.done()
    else:
        body = read_of(keys * READ_TIMES, chunk_stride=0, board_offset=BOARD)
        must(session.call(STORE + "Read", body))
        assert not is_finished(session)
    session.close()
    after = state_when_back(daemon.pid, before, timeout_s=PATIENCE_S)
    assert after.is_back_at(before), (before, after)
    with Client(daemon.socket_path, arena_bytes="1MiB", strict=True) as client:
        # It was given up, and not only over.
        read_bytes = client.admin.stats().counters.get("read_device_bytes", 0)
        assert read_bytes < len(keys) * READ_TIMES * CHUNK_BYTES / 2
        region = client.allocate(CHUNK_BYTES)
        assert region is not None
        for key in keys:
            with client.read(LAYOUT, [key], Placement.contiguous(region, LAYOUT)) as read:
                if read.wait().resident[0]:
                    assert bytes(region.view) == payload
