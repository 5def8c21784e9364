"""Known ways in which a client could leave something behind: each has a bound of its own.

Each fails in the code as it was before its bug was mended (seen: the descriptors of the arena
stay until the deadline of the put; the refused layout is in the index), and when

* ``SequenceTable.create`` does not ask for the limit (seen: a fourth sequence);
* ``LayoutTable.check_limit`` refuses nothing (seen: the layout beyond the limit is registered);
* ``TieredStore`` clears no known layouts (seen: four where three may be);
* ``Notifier`` sends without a timeout (seen: the message to the manager never returns).
"""

import contextlib
import socket
import threading
from pathlib import Path

import grpc
import pytest

from kvstored.server.held.layout_table import LAYOUTS_PER_SESSION_MAX
from kvstored.server.notify import Notifier
from kvstored.store.index.index import Index
from kvstored.store.sequences import sequence_table
from kvstored.store.sequences.rules import SequenceLimitError
from kvstored.tiers import layouts
from kvstored.tiers.sequences.sequences import Caller
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import TOKEN_METADATA, Reason
from kvstored_protos.v1 import session_pb2
from tests.faults.clients.raw_session import RawSession, raw_method
from tests.faults.clients.requests import (
    LAYOUT,
    SESSION,
    STORE,
    hostile_key,
    put_of,
    register,
)
from tests.faults.memory.process import process_state, settled_state, state_when_back
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.scale import Scale, at
from tests.support.stores import NAMESPACE, open_store
from tests.support.waiting import PATIENCE_S

DEADLINE_MS = 600_000
RELEASED_S = PATIENCE_S / 2


@at(Scale.QUICK)
def test_a_put_that_waits_for_room_lets_go_when_its_client_is_gone(tmp_path: Path) -> None:
    """Bug: the arena of a dead client stayed until the deadline of its put, up to ten minutes."""
    overrides: Overrides = {
        "io": {"device_bytes_per_s_max": 64 * 1024},
        "dram": {"capacity_bytes": 8 * MIB},
    }
    with DaemonProcess(tmp_path, overrides=overrides, from_command=True) as daemon:
        check_abandoned_put(daemon)


def check_abandoned_put(daemon: DaemonProcess) -> None:
    with RawSession(daemon.socket_path) as session:
        register(session)
    before = settled_state(daemon.pid)
    session = RawSession(daemon.socket_path)
    register(session)
    # More than DRAM holds, and devices that take minutes for it.
    body = put_of(
        [hostile_key(number) for number in range(1000)], chunk_stride=0, deadline_ms=DEADLINE_MS
    )
    future = raw_method(session.channel, STORE + "Put").future(
        body, metadata=((TOKEN_METADATA, session.welcome.token),), timeout=PATIENCE_S
    )
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(timeout=3)
    assert process_state(daemon.pid).descriptors > before.descriptors
    session.close()
    after = state_when_back(daemon.pid, before, timeout_s=RELEASED_S)
    assert after.is_back_at(before), (before, after)


def test_sequences_of_a_namespace_are_bounded(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a client could make sequences until their list fitted into no answer."""
    monkeypatch.setattr(sequence_table, "SEQUENCES_PER_NAMESPACE_MAX", 3)
    with open_store(in_memory) as opened:
        sequences, caller = opened.store.sequences, Caller(NAMESPACE, 1)
        for number in range(3):
            sequences.create(caller, f"s{number}", LAYOUT)
        for make in (
            lambda: sequences.create(caller, "one more", LAYOUT),
            lambda: sequences.fork(caller, "s0", "one more", 0),
        ):
            with pytest.raises(SequenceLimitError, match="at most 3"):
                make()
        sequences.create(Caller(b"another namespac", 2), "s0", LAYOUT)
        sequences.delete(caller, "s1")
        sequences.fork(caller, "s0", "one more", 0)
        assert sequences.list(caller) == ["one more", "s0", "s2"]


def test_a_layout_beyond_the_limit_of_its_session_is_not_stored(daemon: DaemonProcess) -> None:
    """Bug: the index kept the layouts that the session was then refused."""

    def layout_of(number: int) -> StateLayout:
        return StateLayout(model=f"m{number}", dtype="f", layers=(LayerState(StateKind.KV, 8),))

    with RawSession(daemon.socket_path) as session:
        for number in range(LAYOUTS_PER_SESSION_MAX):
            register(session, layout_of(number))
        refused = layout_of(LAYOUTS_PER_SESSION_MAX)
        request = session_pb2.RegisterLayoutRequest(layout=refused.to_proto())
        answer = session.call(SESSION + "RegisterLayout", request.SerializeToString())
        assert answer.reason == Reason.LIMIT_EXCEEDED.name, answer
        register(session, layout_of(0))
    assert daemon.terminate() == 0
    index = Index.open(daemon.index, map_bytes=256 * MIB)
    try:
        assert index.layout(layout_of(LAYOUTS_PER_SESSION_MAX - 1).layout_id) is not None
        assert index.layout(refused.layout_id) is None
    finally:
        index.close()


def test_the_layouts_that_the_store_remembers_are_bounded(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: sessions that come and go could make it remember ever more of them."""
    monkeypatch.setattr(layouts, "KNOWN_LAYOUTS_MAX", 3)
    with open_store(in_memory) as opened:
        for number in range(10):
            opened.store.layouts.register(
                StateLayout(model=f"m{number}", dtype="f", layers=(LayerState(StateKind.KV, 8),))
            )
            assert len(opened.store.layouts._known) <= 3


def fill(filler: socket.socket, address: str) -> None:
    """Sends until the queue takes no more."""
    with contextlib.suppress(BlockingIOError):
        while True:
            filler.sendto(b"x", address)


def test_a_manager_that_does_not_listen_holds_up_nobody(tmp_path: Path) -> None:
    """Bug: a message to a service manager with a full queue blocked the event loop."""
    address = str(tmp_path / "notify")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler,
    ):
        manager.bind(address)
        filler.setblocking(False)
        fill(filler, address)
        notifier = Notifier(address, watchdog_s=None)
        sender = threading.Thread(target=notifier.ready, args=("epoch 1",), daemon=True)
        sender.start()
        sender.join(RELEASED_S)
        assert not sender.is_alive()
