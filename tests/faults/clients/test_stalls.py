"""Requests that are valid and made to be slow or large: they hold up nobody else.

What one call costs the event loop, a device's thread or the daemon's memory is bounded by
limits; each test sends the worst request that it can within the message size, beside a witness.

Fails when ``source_placement`` checks every length of chunk (seen: the witness runs into its
deadline), when ``Placement.check`` has no least fragment (seen: eight reads hold the daemon for
over a minute), and when ``Session`` does not count the chunks of its leases or of its reads (seen:
no refusal).
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.limits import BLOCKS_PER_CALL_MAX, CHUNKS_PER_CALL_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2
from tests.faults.clients.raw_session import Answer, RawSession
from tests.faults.clients.requests import STORE, must, pin_of, put_of, read_of, register
from tests.faults.clients.test_messages import check_log
from tests.faults.clients.witness import Witness
from tests.faults.memory.process import process_state, processor_s
from tests.support.attempts import least
from tests.support.daemon import MIB, DaemonProcess
from tests.support.scale import Scale, at
from tests.support.sharing import ALONE

COST_S_MAX = 15.0
"""Far above what requests and witness cost the daemon meanwhile, far below what they did cost.

In time of a processor, so that other load on the machine does not count: who has none of that
left holds up nobody.
"""
WITNESS_S_MAX = 1.0
"""A read of a few hundred KiB that takes longer was held up by somebody."""
CALLS_AT_ONCE = 8
KEY = b"slow".ljust(32, b".")


@contextmanager
def bounded_cost(daemon: DaemonProcess) -> Iterator[None]:
    """Fails when what the body asks for costs the daemon more than COST_S_MAX."""
    before_s = processor_s(daemon.pid)
    yield
    cost_s = processor_s(daemon.pid) - before_s
    assert cost_s < COST_S_MAX, f"it took {cost_s:.1f} s of a processor"


def all_at_once(session: RawSession, method: str, body: bytes) -> list[Answer]:
    with ThreadPoolExecutor(CALLS_AT_ONCE) as callers:
        return list(callers.map(lambda _: session.call(method, body), range(CALLS_AT_ONCE)))


def test_a_put_of_chunks_of_many_lengths(served: DaemonProcess) -> None:
    """Bug: the whole placement was checked again, on the event loop, for each length of chunk."""
    layout = StateLayout(
        model="m", dtype="f", layers=(LayerState(StateKind.KV, 1024),), chunk_tokens=4096
    )
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session, layout)
        request = store_pb2.PutRequest(
            layout_id=layout.layout_id,
            chunks=[
                store_pb2.PutChunk(key=number.to_bytes(32, "big"), token_count=number % 4096 + 1)
                for number in range(CHUNKS_PER_CALL_MAX)
            ],
            # Only the longest chunk does not fit.
            source=common_pb2.Placement(
                base=session.welcome.arena_bytes - 4095 * 64,
                block_offsets=[0] * BLOCKS_PER_CALL_MAX,
            ),
            ack=store_pb2.ACK_STAGED,
            deadline_ms=1000,
        ).SerializeToString()
        with bounded_cost(served):
            answer = session.call(STORE + "Put", request)
        assert answer.reason == Reason.ARENA_RANGE.name
        assert "ends at byte" in answer.details
    check_log(served)


def ask_in_fragments_of_one_byte(daemon: DaemonProcess) -> Witness:
    """Reads of 2 MiB from DRAM, one byte after the other; the witness that was beside them."""
    layout = StateLayout(
        model="m", dtype="f", layers=(LayerState(StateKind.KV, 64),) * 7, chunk_tokens=4096
    )
    with (
        RawSession(daemon.socket_path, arena_bytes=4 * MIB) as session,
        Witness(daemon.socket_path) as witness,
    ):
        register(session, layout)
        must(session.call(STORE + "Put", put_of([KEY], layout=layout)))
        request = read_of(
            [KEY],
            layout=layout,
            board_offset=4 * MIB - 4096,
            block_offsets=range(0, 2 * BLOCKS_PER_CALL_MAX, 2),
        )
        with bounded_cost(daemon):
            answers = all_at_once(session, STORE + "Read", request)
        assert {answer.reason for answer in answers} == {Reason.ARENA_RANGE.name}, answers
    check_log(daemon)
    return witness


def test_a_read_in_fragments_of_one_byte(served: DaemonProcess) -> None:
    """Bug: a read of 2 MiB from DRAM was copied on the event loop, one byte after the other."""
    ask_in_fragments_of_one_byte(served)


@ALONE
def test_who_reads_beside_it_does_not_wait(served: DaemonProcess) -> None:
    def slowest_s() -> float:
        return ask_in_fragments_of_one_byte(served).slowest_s

    assert least(slowest_s, below=WITNESS_S_MAX) < WITNESS_S_MAX


def test_leases_on_the_same_chunk_are_bounded(served: DaemonProcess) -> None:
    """Bug: 4,096 leases of 16,384 chunks each, all of one client, took gigabytes."""
    layout = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, 64),))
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session, layout)
        must(session.call(STORE + "Put", put_of([KEY], layout=layout)))
        before = process_state(served.pid)
        request = pin_of([KEY] * CHUNKS_PER_CALL_MAX, layout=layout)
        for _ in range(40):
            with bounded_cost(served):
                answer = session.call(STORE + "Pin", request)
            if answer.status is not grpc.StatusCode.OK:
                break
        assert answer.reason == Reason.LIMIT_EXCEEDED.name, answer
        assert process_state(served.pid).resident_bytes < before.resident_bytes + 160 * MIB
    check_log(served)


@at(Scale.QUICK)
def test_chunks_of_reads_in_flight_are_bounded(tmp_path: Path) -> None:
    """Bug: 256 reads of 16,384 chunks each, all of one client, took gigabytes."""
    with DaemonProcess(tmp_path, overrides={"io": {"device_bytes_per_s_max": 4 * MIB}}) as daemon:
        check_reads_in_flight(daemon)


def check_reads_in_flight(daemon: DaemonProcess) -> None:
    layout = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, 64),))
    with RawSession(daemon.socket_path) as session:
        register(session, layout)
        must(session.call(STORE + "Put", put_of([KEY], layout=layout)))
        daemon.restart()
    with RawSession(daemon.socket_path) as session, Witness(daemon.socket_path):
        register(session, layout)
        before = process_state(daemon.pid)
        request = read_of(
            [KEY] * CHUNKS_PER_CALL_MAX, layout=layout, chunk_stride=0, board_offset=1 << 19
        )
        for _ in range(40):
            answer = session.call(STORE + "Read", request)
            if answer.status is not grpc.StatusCode.OK:
                break
        assert answer.reason == Reason.LIMIT_EXCEEDED.name, answer
        assert process_state(daemon.pid).resident_bytes < before.resident_bytes + 320 * MIB
    check_log(daemon)
