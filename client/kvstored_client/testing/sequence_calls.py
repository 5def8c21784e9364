"""The calls of the sequence service, and the append of rows."""

from dataclasses import replace
from typing import TYPE_CHECKING

from kvstored_client.testing import checks
from kvstored_client.testing.faults import CallName
from kvstored_client.testing.memory_sequence import MemorySequence
from kvstored_client.testing.memory_session import MemorySession
from kvstored_client.testing.refusal import refuse
from kvstored_client.testing.stored_chunk import StoredChunk
from kvstored_client.testing.tail import Tail
from kvstored_contract.limits import DEADLINE_MS_MAX
from kvstored_contract.reasons import Reason
from kvstored_contract.snapshot import SnapshotGeometry
from kvstored_protos.v1 import common_pb2, sequence_pb2, store_pb2

if TYPE_CHECKING:
    from kvstored_client.testing.store import MemoryStore


def append(
    store: "MemoryStore", session: MemorySession, request: store_pb2.AppendRequest
) -> store_pb2.AppendReply:
    """Adds the rows of one step; chunks that they complete are stored."""
    layout = session.layout(request.layout_id)
    end = checks.check_append(request, layout, arena_bytes=len(session.arena))
    snapshot = session.arena[request.snapshot_offset : end]
    geometry = SnapshotGeometry(layout, request.row_count)
    number = store.call_counts[CallName.APPEND] - 1
    results = []
    for item in request.items:
        sequence = store.sequence_of(session, item.sequence)
        if sequence is None:
            reason = Reason.SEQUENCE_UNKNOWN
        elif sequence.is_anothers(session.session_id):
            reason = Reason.SEQUENCE_CONFLICT
        else:
            rejected = store.faults.append_rejection(number, item.sequence)
            reason = _problem(store, sequence, item, geometry, rejected)
            if reason is Reason.UNSPECIFIED:
                _add_rows(store, sequence, item, snapshot, geometry)
                sequence.owner = session.session_id
        results.append(
            store_pb2.AppendResult(
                length_tokens=sequence.length_tokens if sequence else 0,
                reason=common_pb2.Reason.ValueType(reason),
            )
        )
    return store_pb2.AppendReply(results=results)


def _problem(
    store: "MemoryStore",
    sequence: MemorySequence,
    item: store_pb2.AppendItem,
    geometry: SnapshotGeometry,
    rejected: Reason | None,
) -> Reason:
    """Why the rows of an item are dropped; UNSPECIFIED when they are not."""
    is_other = sequence.layout.layout_id != geometry.layout.layout_id
    if is_other or sequence.length_tokens != item.first_token:
        return Reason.SEQUENCE_CONFLICT
    if not sequence.open_tail(store.chunks):
        return Reason.NOT_STORED
    if rejected:
        sequence.is_stopped = True
        if rejected is Reason.STORE_FULL:
            sequence.lose_tail()
        return rejected
    return Reason.UNSPECIFIED


def _add_rows(
    store: "MemoryStore",
    sequence: MemorySequence,
    item: store_pb2.AppendItem,
    snapshot: memoryview,
    geometry: SnapshotGeometry,
) -> None:
    chunk_tokens = sequence.layout.chunk_tokens
    keys = iter(item.keys)
    row, end = item.first_row, item.first_row + item.token_count
    while row < end:
        tail = sequence.tail or Tail(sequence.layout)
        count = min(end - row, chunk_tokens - tail.token_count)
        tail.add(snapshot, geometry, first_row=row, row_count=count)
        row += count
        sequence.tail = tail
        if tail.token_count == chunk_tokens:
            key = next(keys)
            store.chunks.setdefault(key, _sealed(sequence, tail))
            sequence.keys.append(key)
            sequence.tail = None
    sequence.tail_tokens = sequence.tail.token_count if sequence.tail else 0
    sequence.is_stopped = False


def _sealed(sequence: MemorySequence, tail: Tail) -> StoredChunk:
    return StoredChunk(
        layout_id=sequence.layout.layout_id,
        slices=tail.slices(),
        token_count=tail.token_count,
        parent_key=sequence.keys[-1] if sequence.keys else b"",
    )


def create(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.CreateSequenceRequest
) -> sequence_pb2.Sequence:
    """Makes a sequence, empty or of stored chunks."""
    checks.check_name(request.name)
    layout = session.layout(request.layout_id)
    if request.keys:
        checks.check_keys(request.keys)
    session_id = session.session_id * request.ephemeral
    sequence = MemorySequence(
        name=request.name,
        layout=layout,
        session_id=session_id,
        owner=session_id,
        keys=list(request.keys),
    )
    return _added(store, session, sequence)


def _added(
    store: "MemoryStore", session: MemorySession, sequence: MemorySequence
) -> sequence_pb2.Sequence:
    if store.sequence_of(session, sequence.name) is not None:
        refuse(Reason.SEQUENCE_EXISTS, f"there is a sequence {sequence.name!r} already")
    store.sequences[sequence.name, sequence.session_id] = sequence
    return sequence.to_proto()


def _known(store: "MemoryStore", session: MemorySession, name: str) -> MemorySequence:
    sequence = store.sequence_of(session, checks.check_name(name))
    if sequence is None:
        refuse(Reason.SEQUENCE_UNKNOWN, f"there is no sequence {name!r}")
    return sequence


def _check_owner(sequence: MemorySequence, session: MemorySession) -> None:
    if sequence.is_anothers(session.session_id):
        refuse(
            Reason.SEQUENCE_CONFLICT,
            "another client has added tokens to the sequence and not flushed them",
        )


def get(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.SequenceRequest
) -> sequence_pb2.Sequence:
    """Answers a sequence with its keys."""
    return _known(store, session, request.name).to_proto()


def append_chunks(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.AppendChunksRequest
) -> sequence_pb2.Sequence:
    """Adds chunks at the back."""
    checks.check_keys(request.keys)
    sequence = _known(store, session, request.name)
    if len(sequence.keys) != request.expected_chunks or sequence.tail_tokens:
        refuse(
            Reason.SEQUENCE_CONFLICT,
            f"the sequence has {len(sequence.keys)} chunks and {sequence.tail_tokens} tokens "
            f"behind them, not the expected {request.expected_chunks} chunks",
        )
    sequence.keys.extend(request.keys)
    sequence.is_stopped = False
    return sequence.to_proto()


def fork(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.ForkSequenceRequest
) -> sequence_pb2.Sequence:
    """Copies the front of a sequence, or all of it, under a new name."""
    checks.check_name(request.new_name, "new_name")
    original = _known(store, session, request.name)
    original.check_chunks(request.keep_chunks)
    copy = replace(original, name=request.new_name, keys=list(original.keys), tail=None, owner=0)
    if request.keep_chunks:
        copy.cut(request.keep_chunks)
    elif original.is_anothers(session.session_id):
        copy.lose_tail()
    elif original.tail is not None:
        copy.tail = original.tail.first(original.tail_tokens)
        copy.owner = session.session_id
    return _added(store, session, copy)


def truncate_front(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.TruncateSequenceRequest
) -> sequence_pb2.Sequence:
    """Drops chunks from the front."""
    checks.check_bounds(request.drop_tokens, "drop_tokens of TruncateFront", least=0, most=0)
    sequence = _known(store, session, request.name)
    sequence.truncate_front(request.drop_chunks)
    return sequence.to_proto()


def truncate_back(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.TruncateSequenceRequest
) -> sequence_pb2.Sequence:
    """Drops chunks or tokens from the back."""
    sequence = _known(store, session, request.name)
    if request.drop_tokens:
        checks.check_bounds(request.drop_chunks, "drop_chunks with drop_tokens", least=0, most=0)
        _check_owner(sequence, session)
        sequence.truncate_tokens(request.drop_tokens, store.chunks, owner=session.session_id)
    else:
        sequence.truncate_back(request.drop_chunks)
    return sequence.to_proto()


def flush(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.FlushSequenceRequest
) -> sequence_pb2.Sequence:
    """Makes the tail durable: a short chunk, and the tail stays open."""
    if request.tail_key:
        checks.check_keys([request.tail_key])
    checks.check_bounds(request.deadline_ms, "deadline_ms", least=0, most=DEADLINE_MS_MAX)
    sequence = _known(store, session, request.name)
    if sequence.length_tokens != request.expected_tokens:
        refuse(
            Reason.SEQUENCE_CONFLICT,
            f"the sequence has {sequence.length_tokens} tokens, not the expected "
            f"{request.expected_tokens}",
        )
    _check_owner(sequence, session)
    if sequence.is_flushed and sequence.flushed and sequence.flushed[0] != request.tail_key:
        refuse(Reason.SEQUENCE_CONFLICT, "the last tokens are flushed under another key")
    if sequence.tail_tokens and not request.tail_key:
        refuse(Reason.SEQUENCE_CONFLICT, "the sequence has an open tail; flush it with its key")
    if store.faults.devices_are_late:
        return _late(sequence, request)
    if sequence.tail is not None and sequence.tail_tokens:
        store.chunks.setdefault(request.tail_key, _sealed(sequence, sequence.tail))
        sequence.flushed = request.tail_key, sequence.tail_tokens
        sequence.flushed_index = len(sequence.keys)
    return sequence.to_proto()


def _late(
    sequence: MemorySequence, request: sequence_pb2.FlushSequenceRequest
) -> sequence_pb2.Sequence:
    """The answer of a flush of which nothing was durable at its deadline."""
    if not request.deadline_ms:
        refuse(Reason.DEADLINE, "nothing is durable yet; flush again")
    reply = sequence.to_proto()
    del reply.keys[:]
    reply.durable_tokens = reply.durable_tail_tokens = 0
    reply.tail_key = b""
    reply.reason = common_pb2.REASON_DEADLINE
    return reply


def delete(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.SequenceRequest
) -> sequence_pb2.DeleteSequenceReply:
    """Deletes a sequence; its chunks stay."""
    sequence = _known(store, session, request.name)
    del store.sequences[sequence.name, sequence.session_id]
    return sequence_pb2.DeleteSequenceReply()


def list_names(
    store: "MemoryStore", _session: MemorySession, _request: sequence_pb2.ListSequencesRequest
) -> sequence_pb2.ListSequencesReply:
    """Names all sequences but ephemeral ones."""
    names = sorted(name for name, session_id in store.sequences if not session_id)
    return sequence_pb2.ListSequencesReply(names=names)
