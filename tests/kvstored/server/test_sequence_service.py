"""Sequences over gRPC."""

from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, sequence_pb2
from tests.kvstored.server.caller import KEYS, LAYOUT, Caller, reason_of


async def test_sequences(caller: Caller) -> None:
    stub, metadata = caller.sequences, caller.peer.metadata
    created = await stub.Create(
        sequence_pb2.CreateSequenceRequest(name="s", layout_id=LAYOUT.layout_id), metadata=metadata
    )
    assert (created.name, created.layout_id) == ("s", LAYOUT.layout_id)
    appended = await stub.AppendChunks(
        sequence_pb2.AppendChunksRequest(name="s", keys=KEYS), metadata=metadata
    )
    assert list(appended.keys) == KEYS
    fork = await stub.Fork(
        sequence_pb2.ForkSequenceRequest(name="s", new_name="f", keep_chunks=3), metadata=metadata
    )
    assert (fork.name, list(fork.keys)) == ("f", KEYS[:3])
    drop = sequence_pb2.TruncateSequenceRequest(name="f", drop_chunks=1)
    front = await stub.TruncateFront(drop, metadata=metadata)
    assert (list(front.keys), front.dropped_chunks) == (KEYS[1:3], 1)
    back = await stub.TruncateBack(drop, metadata=metadata)
    assert list(back.keys) == KEYS[1:2]
    assert (
        list((await stub.Get(sequence_pb2.SequenceRequest(name="f"), metadata=metadata)).keys)
        == (KEYS[1:2])
    )
    listed = await stub.List(sequence_pb2.ListSequencesRequest(), metadata=metadata)
    assert list(listed.names) == ["f", "s"]
    await stub.Delete(sequence_pb2.SequenceRequest(name="f"), metadata=metadata)
    gone = stub.Get(sequence_pb2.SequenceRequest(name="f"), metadata=metadata)
    assert await reason_of(gone) is Reason.SEQUENCE_UNKNOWN


async def test_bad_sequence_calls(caller: Caller) -> None:
    stub, metadata = caller.sequences, caller.peer.metadata
    create = sequence_pb2.CreateSequenceRequest(name="s", layout_id=LAYOUT.layout_id)
    await stub.Create(create, metadata=metadata)
    assert await reason_of(stub.Create(create, metadata=metadata)) is Reason.SEQUENCE_EXISTS
    nameless = stub.Get(sequence_pb2.SequenceRequest(), metadata=metadata)
    assert await reason_of(nameless) is Reason.FIELD_INVALID
    keyless = stub.AppendChunks(sequence_pb2.AppendChunksRequest(name="s"), metadata=metadata)
    assert await reason_of(keyless) is Reason.FIELD_INVALID
    conflict = stub.AppendChunks(
        sequence_pb2.AppendChunksRequest(name="s", keys=KEYS, expected_chunks=1), metadata=metadata
    )
    assert await reason_of(conflict) is Reason.SEQUENCE_CONFLICT


async def test_a_tail_is_told_flushed_and_cut(caller: Caller) -> None:
    stub, metadata = caller.sequences, caller.peer.metadata
    created = await stub.Create(
        sequence_pb2.CreateSequenceRequest(
            name="s", layout_id=LAYOUT.layout_id, ephemeral=True, keys=KEYS[:2]
        ),
        metadata=metadata,
    )
    assert (list(created.keys), created.ephemeral) == (KEYS[:2], True)
    length = 2 * LAYOUT.chunk_tokens
    assert (created.staged_tokens, created.durable_tokens) == (length, length)
    cut = await stub.TruncateBack(
        sequence_pb2.TruncateSequenceRequest(name="s", drop_tokens=1), metadata=metadata
    )
    assert (cut.staged_tokens, cut.tail_tokens) == (length - 1, LAYOUT.chunk_tokens - 1)
    assert (cut.durable_tokens, list(cut.keys)) == (LAYOUT.chunk_tokens, KEYS[:1])
    flush = sequence_pb2.FlushSequenceRequest(
        name="s", tail_key=KEYS[0], expected_tokens=length - 1
    )
    assert (await stub.Flush(flush, metadata=metadata)).staged_tokens == length - 1
    assert caller.served.store.sequences.flushed == [KEYS[0]]


async def test_a_flush_without_a_deadline_is_refused_when_it_is_late(caller: Caller) -> None:
    """Who does not know of deadlines would take an answer for a flush that was done."""
    stub, metadata = caller.sequences, caller.peer.metadata
    await stub.Create(
        sequence_pb2.CreateSequenceRequest(name="s", layout_id=LAYOUT.layout_id, keys=KEYS[:1]),
        metadata=metadata,
    )
    await stub.TruncateBack(
        sequence_pb2.TruncateSequenceRequest(name="s", drop_tokens=1), metadata=metadata
    )
    caller.served.store.sequences.is_late = True
    flush = sequence_pb2.FlushSequenceRequest(name="s", tail_key=KEYS[0], expected_tokens=3)
    assert await reason_of(stub.Flush(flush, metadata=metadata)) is Reason.DEADLINE
    flush.deadline_ms = 1
    answer = await stub.Flush(flush, metadata=metadata)
    assert (answer.reason, answer.staged_tokens) == (common_pb2.REASON_DEADLINE, 3)


async def test_bad_calls_for_tails(caller: Caller) -> None:
    stub, metadata = caller.sequences, caller.peer.metadata
    await stub.Create(
        sequence_pb2.CreateSequenceRequest(name="s", layout_id=LAYOUT.layout_id), metadata=metadata
    )
    for call in (
        stub.Flush(
            sequence_pb2.FlushSequenceRequest(name="s", tail_key=b"short"), metadata=metadata
        ),
        stub.TruncateBack(
            sequence_pb2.TruncateSequenceRequest(name="s", drop_chunks=1, drop_tokens=1),
            metadata=metadata,
        ),
        stub.TruncateFront(
            sequence_pb2.TruncateSequenceRequest(name="s", drop_tokens=1), metadata=metadata
        ),
    ):
        assert await reason_of(call) is Reason.FIELD_INVALID
    late = stub.Flush(
        sequence_pb2.FlushSequenceRequest(name="s", expected_tokens=1), metadata=metadata
    )
    assert await reason_of(late) is Reason.SEQUENCE_CONFLICT
