"""The call about an engine's queue: nothing is fetched or kept, but a session has its queue."""

from typing import TYPE_CHECKING

from kvstored_client.testing import checks
from kvstored_client.testing.memory_session import MemorySession
from kvstored_contract.limits import HINTED_CHUNKS_PER_SESSION_MAX, WAITING_PER_SESSION_MAX
from kvstored_protos.v1 import sequence_pb2

if TYPE_CHECKING:
    from kvstored_client.testing.store import MemoryStore


def hint(
    store: "MemoryStore", session: MemorySession, request: sequence_pb2.HintRequest
) -> sequence_pb2.HintReply:
    """Changes the queue of a session, unless the change is old or one before it is missing."""
    checks.check_hint(request)
    keys = {entry.name: _keys(store, session, entry) for entry in request.entered}
    is_newer = request.version > session.queue_version
    if not is_newer or request.previous_version not in (0, session.queue_version):
        return sequence_pb2.HintReply(taken=False, version=session.queue_version)
    session.queue_version = request.version
    gone = [*request.left, *keys] if request.previous_version else list(session.waiting)
    for name in gone:
        session.waiting.pop(name, None)
    places = {entry.name: entry.place for entry in request.entered}
    chunk_count = sum(len(named) for _, named in session.waiting.values())
    ignored = []
    for name, named in keys.items():
        is_full = len(session.waiting) == WAITING_PER_SESSION_MAX
        if named is None or is_full or chunk_count + len(named) > HINTED_CHUNKS_PER_SESSION_MAX:
            ignored.append(name)
        else:
            chunk_count += len(named)
            session.waiting[name] = (places[name], named)
    return sequence_pb2.HintReply(taken=True, version=request.version, ignored=ignored)


def _keys(
    store: "MemoryStore", session: MemorySession, entry: sequence_pb2.QueueEntry
) -> tuple[bytes, ...] | None:
    """The chunks that a request waits for; None when nobody knows its sequence."""
    if entry.keys:
        session.layout(entry.layout_id)
        return tuple(dict.fromkeys(entry.keys))
    sequence = store.sequence_of(session, entry.name)
    return None if sequence is None else tuple(sequence.keys)
