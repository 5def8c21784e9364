"""Appends and tails of the SDK, over a socket to a store in memory."""

import pytest

from kvstored_client import (
    AppendItem,
    AppendReport,
    AppendResult,
    AsyncClient,
    Client,
    RegionStaleError,
    RequestInvalidError,
    SequenceConflictError,
    SnapshotGeometry,
)
from kvstored_client.errors import DaemonFaultError
from kvstored_client.session.region import Region
from kvstored_client.testing import CallName, MemoryStore
from kvstored_client.verbs.replies import append_report, unserved_report
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import store_pb2

KEY = b"k" * 32
TAIL_KEY = b"t" * 32
ROWS = 3
ITEMS = [
    AppendItem(sequence="a", first_token=15, first_row=0, token_count=1, keys=[KEY]),
    AppendItem(sequence="b", first_token=2, first_row=1, token_count=2),
]


def snapshot(region: Region | None) -> Region:
    assert region is not None
    region.view[:] = bytes(number % 251 for number in range(region.byte_count))
    return region


def byte_count(layout: StateLayout) -> int:
    return SnapshotGeometry(layout, ROWS).byte_count


def open_sequences(client: Client, layout: StateLayout) -> None:
    """The sequences of ITEMS, as long as these expect."""
    with snapshot(client.allocate(SnapshotGeometry(layout, 15).byte_count)) as region:
        for name, length in (("a", 15), ("b", 2)):
            assert client.sequences.create(name, layout)
            rows = AppendItem(sequence=name, first_token=0, first_row=0, token_count=length)
            assert client.append(layout, region, 15, [rows]).results == (AppendResult(length),)


def test_one_call_carries_the_whole_batch(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    open_sequences(client, layout)
    region = snapshot(client.allocate(byte_count(layout)))
    report = client.append(layout, region, ROWS, ITEMS)
    assert report == AppendReport((AppendResult(16), AppendResult(4)))
    assert all(result.is_taken for result in report.results)
    assert memory.requests[-1] == store_pb2.AppendRequest(
        layout_id=layout.layout_id,
        snapshot_offset=region.offset,
        row_count=ROWS,
        items=[
            store_pb2.AppendItem(sequence="a", first_token=15, token_count=1, keys=[KEY]),
            store_pb2.AppendItem(sequence="b", first_token=2, first_row=1, token_count=2),
        ],
        deadline_ms=5000,
    )
    assert memory.chunks[KEY].token_count == layout.chunk_tokens


async def test_the_same_for_tasks(async_client: AsyncClient, layout: StateLayout) -> None:
    sequences = async_client.sequences
    created = await sequences.create("a", layout, keys=[KEY], ephemeral=True)
    assert created is not None
    assert (created.is_ephemeral, created.keys) == (True, (KEY,))
    region = snapshot(await async_client.allocate(byte_count(layout)))
    rows = AppendItem(sequence="a", first_token=16, first_row=0, token_count=ROWS)
    report = await async_client.append(layout, region, ROWS, [rows])
    assert [result.length_tokens for result in report.results] == [19]
    flushed = await sequences.flush("a", TAIL_KEY, expected_tokens=19)
    assert flushed is not None
    assert (flushed.tail_key, flushed.durable_tokens) == (TAIL_KEY, 19)
    shorter = await sequences.truncate_tokens("a", 2)
    assert shorter is not None
    assert shorter.staged_tokens == 17


def test_a_dropped_row_is_a_value(client: Client, memory: MemoryStore, layout: StateLayout) -> None:
    open_sequences(client, layout)
    memory.faults.append_rejection = lambda number, sequence: Reason.DRAM_FULL
    region = snapshot(client.allocate(byte_count(layout)))
    report = client.append(layout, region, ROWS, ITEMS)
    assert report.is_served
    assert {result.reason for result in report.results} == {Reason.DRAM_FULL}
    assert not any(result.is_taken for result in report.results)


def test_a_call_that_is_not_served_takes_nothing(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    region = snapshot(client.allocate(byte_count(layout)))
    memory.faults.refusals[CallName.APPEND] = Reason.LIMIT_EXCEEDED
    report = client.append(layout, region, ROWS, ITEMS)
    assert report == AppendReport((AppendResult(0, Reason.LIMIT_EXCEEDED),) * 2, is_served=False)
    assert client.counters["append_failed_LimitExceeded"] == 1


def test_an_append_without_an_answer_ends_the_session(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    region = snapshot(client.allocate(byte_count(layout)))
    memory.faults.silent.add(CallName.APPEND)
    report = client.append(layout, region, ROWS, ITEMS)
    assert not report.is_served
    assert not any(result.is_taken for result in report.results)
    assert not region.is_current


def test_nothing_to_append_is_no_call(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    region = snapshot(client.allocate(4096))
    before = len(memory.requests)
    assert client.append(layout, region, ROWS, []) == AppendReport(())
    assert len(memory.requests) == before


def test_a_snapshot_must_be_there_and_fit(strict_client: Client, layout: StateLayout) -> None:
    region = snapshot(strict_client.allocate(100))
    with pytest.raises(RequestInvalidError, match="of 3 rows has"):
        strict_client.append(layout, region, ROWS, ITEMS)
    with pytest.raises(RequestInvalidError, match="at least one row"):
        strict_client.append(layout, region, 0, ITEMS)
    region.release()
    with pytest.raises(RegionStaleError):
        strict_client.append(layout, region, 1, ITEMS)


def test_a_malformed_item_is_an_invalid_request(strict_client: Client, layout: StateLayout) -> None:
    region = snapshot(strict_client.allocate(byte_count(layout)))
    bad = AppendItem(sequence="a", first_token=2**64, first_row=0, token_count=1)
    with pytest.raises(RequestInvalidError):
        strict_client.append(layout, region, ROWS, [bad])


def test_verbs_of_the_tail(
    client: Client, strict_client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    created = client.sequences.create("a", layout, keys=[KEY], ephemeral=True)
    assert created is not None
    assert (created.is_ephemeral, created.keys, created.is_stopped) == (True, (KEY,), False)
    region = snapshot(client.allocate(byte_count(layout)))
    rows = [
        AppendItem(sequence="a", first_token=first, first_row=0, token_count=count)
        for first, count in ((16, 2), (18, 1), (19, 1))
    ]
    client.append(layout, region, ROWS, rows[:1])
    flushed = client.sequences.flush("a", TAIL_KEY, expected_tokens=18)
    assert flushed is not None
    assert flushed.durable_tokens == 18
    client.append(layout, region, ROWS, rows[1:2])
    memory.faults.append_rejection = lambda number, sequence: Reason.DRAM_FULL
    client.append(layout, region, ROWS, rows[2:])
    info = client.sequences.get("a")
    assert info is not None
    assert (info.tail_key, info.durable_tail_tokens, info.tail_tokens) == (TAIL_KEY, 2, 3)
    assert (info.staged_tokens, info.durable_tokens, info.is_stopped) == (19, 18, True)
    shorter = client.sequences.truncate_tokens("a", 2)
    assert shorter is not None
    assert shorter.staged_tokens == 17
    assert client.sequences.create("b", layout)
    assert client.sequences.flush("b", TAIL_KEY, expected_tokens=16) is None
    with pytest.raises(SequenceConflictError):
        strict_client.sequences.flush("b", TAIL_KEY, expected_tokens=16)


def test_replies_that_cannot_be_are_faults_of_the_daemon() -> None:
    with pytest.raises(DaemonFaultError, match="1 results for 2 items"):
        append_report(store_pb2.AppendReply(results=[store_pb2.AppendResult()]), 2)
    unknown = store_pb2.AppendReply(results=[store_pb2.AppendResult(reason=99)])  # type: ignore[arg-type]
    with pytest.raises(DaemonFaultError, match="outside the contract"):
        append_report(unknown, 1)
    assert not unserved_report(Reason.UNSPECIFIED, 1).results[0].is_taken
