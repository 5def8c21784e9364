"""Verbs of the sequence service, as flows that any transport can drive."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from google.protobuf.message import Message

from kvstored_client.errors import SequenceUnknownError, StoreError
from kvstored_client.session.limits import CALL_TIMEOUT_S, REPLY_GRACE_S
from kvstored_client.session.session import Session
from kvstored_client.values import HintReport, QueueEntry, SequenceInfo
from kvstored_client.verbs import methods
from kvstored_client.verbs.call import Flow, Method, Verb, ask, building
from kvstored_client.verbs.replies import hint_report, sequence_info
from kvstored_client.verbs.store_verbs import registered
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX
from kvstored_protos.v1 import sequence_pb2


def create(
    name: str, layout: StateLayout, *, keys: Sequence[bytes], ephemeral: bool
) -> Verb[SequenceInfo | None]:
    """Makes a sequence that begins with ``keys``; more than a call may name are appended."""

    def flow(session: Session) -> Flow[SequenceInfo | None]:
        layout_id = yield from registered(session, layout)
        with building():
            request = sequence_pb2.CreateSequenceRequest(
                name=name,
                layout_id=layout_id,
                ephemeral=ephemeral,
                keys=keys[:CHUNKS_PER_CALL_MAX],
            )
        reply = yield from ask(session, methods.SEQUENCE_CREATE, request)
        made: SequenceInfo | None = sequence_info(reply)
        try:
            for first in range(CHUNKS_PER_CALL_MAX, len(keys), CHUNKS_PER_CALL_MAX):
                part = keys[first : first + CHUNKS_PER_CALL_MAX]
                made = yield from append(name, part, expected_chunks=first).flow(session)
        except StoreError:
            with suppress(StoreError):
                yield from delete(name).flow(session)
            raise
        return made

    return Verb(name="sequence_create", flow=flow, missed=lambda _: None)


def get(name: str) -> Verb[SequenceInfo | None]:
    """Looks a sequence up; one that does not exist is None and no failure."""

    def flow(session: Session) -> Flow[SequenceInfo | None]:
        with building():
            request = sequence_pb2.SequenceRequest(name=name)
        try:
            return sequence_info((yield from ask(session, methods.SEQUENCE_GET, request)))
        except SequenceUnknownError:
            return None

    return Verb(name="sequence_get", flow=flow, missed=lambda _: None)


def append(name: str, keys: Sequence[bytes], *, expected_chunks: int) -> Verb[SequenceInfo | None]:
    """Appends chunk keys to a sequence that has ``expected_chunks`` now."""
    return _change(
        "sequence_append",
        methods.SEQUENCE_APPEND,
        lambda: sequence_pb2.AppendChunksRequest(
            name=name, keys=keys, expected_chunks=expected_chunks
        ),
    )


def fork(name: str, new_name: str, *, keep_chunks: int) -> Verb[SequenceInfo | None]:
    """Copies the first ``keep_chunks`` keys (0: all) into a new sequence."""
    return _change(
        "sequence_fork",
        methods.SEQUENCE_FORK,
        lambda: sequence_pb2.ForkSequenceRequest(
            name=name, new_name=new_name, keep_chunks=keep_chunks
        ),
    )


def truncate_front(name: str, drop_chunks: int) -> Verb[SequenceInfo | None]:
    """Drops keys from the front."""
    return _change(
        "sequence_truncate_front",
        methods.SEQUENCE_TRUNCATE_FRONT,
        lambda: sequence_pb2.TruncateSequenceRequest(name=name, drop_chunks=drop_chunks),
    )


def truncate_back(name: str, drop_chunks: int) -> Verb[SequenceInfo | None]:
    """Drops keys from the back."""
    return _change(
        "sequence_truncate_back",
        methods.SEQUENCE_TRUNCATE_BACK,
        lambda: sequence_pb2.TruncateSequenceRequest(name=name, drop_chunks=drop_chunks),
    )


def truncate_tokens(name: str, drop_tokens: int) -> Verb[SequenceInfo | None]:
    """Drops tokens from the back."""
    return _change(
        "sequence_truncate_tokens",
        methods.SEQUENCE_TRUNCATE_BACK,
        lambda: sequence_pb2.TruncateSequenceRequest(name=name, drop_tokens=drop_tokens),
    )


def flush(
    name: str, tail_key: bytes, *, expected_tokens: int, timeout_ms: int
) -> Verb[SequenceInfo | None]:
    """Makes a sequence with its tail durable, as far as that can be done in time."""
    return _change(
        "sequence_flush",
        methods.SEQUENCE_FLUSH,
        lambda: sequence_pb2.FlushSequenceRequest(
            name=name,
            tail_key=tail_key,
            expected_tokens=expected_tokens,
            # 0 would leave the choice to the daemon, which refuses then what is late.
            deadline_ms=timeout_ms or 1,
        ),
        timeout_s=timeout_ms / 1000 + REPLY_GRACE_S,
    )


def delete(name: str) -> Verb[bool]:
    """Deletes a sequence, not its chunks; False when there was none."""

    def flow(session: Session) -> Flow[bool]:
        with building():
            request = sequence_pb2.SequenceRequest(name=name)
        try:
            yield from ask(session, methods.SEQUENCE_DELETE, request)
        except SequenceUnknownError:
            return False
        return True

    return Verb(name="sequence_delete", flow=flow, missed=lambda _: False)


def list_names() -> Verb[list[str]]:
    """Names of all sequences of the namespace."""

    def flow(session: Session) -> Flow[list[str]]:
        request = sequence_pb2.ListSequencesRequest()
        reply = yield from ask(session, methods.SEQUENCE_LIST, request)
        return list(reply.names)

    return Verb(name="sequence_list", flow=flow, missed=lambda _: [])


def hint(
    entered: Sequence[QueueEntry], left: Sequence[str], *, version: int, previous_version: int
) -> Verb[HintReport | None]:
    """Tells what changed in the engine's queue."""

    def flow(session: Session) -> Flow[HintReport | None]:
        entries = []
        for entry in entered:
            layout_id = b""
            if entry.layout is not None:
                layout_id = yield from registered(session, entry.layout)
            with building():
                entries.append(
                    sequence_pb2.QueueEntry(
                        name=entry.name, place=entry.place, keys=entry.keys, layout_id=layout_id
                    )
                )
        with building():
            request = sequence_pb2.HintRequest(
                version=version, previous_version=previous_version, entered=entries, left=left
            )
        return hint_report((yield from ask(session, methods.SEQUENCE_HINT, request)))

    return Verb(name="sequence_hint", flow=flow, missed=lambda _: None)


def _change(
    verb: str,
    method: Method[sequence_pb2.Sequence],
    build: Callable[[], Message],
    *,
    timeout_s: float = CALL_TIMEOUT_S,
) -> Verb[SequenceInfo | None]:
    def flow(session: Session) -> Flow[SequenceInfo | None]:
        with building():
            request = build()
        return sequence_info((yield from ask(session, method, request, timeout_s=timeout_s)))

    return Verb(name=verb, flow=flow, missed=lambda _: None)
