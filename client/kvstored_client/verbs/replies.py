"""What the daemon's replies mean. Pure; a reply that cannot be raises DaemonFaultError."""

from kvstored_client.errors import DaemonFaultError, reason_of
from kvstored_client.values import (
    AppendReport,
    AppendResult,
    Change,
    ChangeKind,
    Changes,
    HintReport,
    PutOutcome,
    PutReport,
    PutResult,
    SequenceInfo,
)
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import sequence_pb2, store_pb2


def put_report(reply: store_pb2.PutReply, chunk_count: int) -> PutReport:
    """One result for each of ``chunk_count`` chunks."""
    if len(reply.results) != chunk_count:
        raise DaemonFaultError(
            f"the daemon answered {len(reply.results)} results for {chunk_count} chunks"
        )
    return PutReport(
        tuple(
            PutResult(_outcome_of(result.outcome), reason_of(result.reason))
            for result in reply.results
        )
    )


def _outcome_of(value: int) -> PutOutcome:
    try:
        return PutOutcome(value)
    except ValueError as error:
        raise DaemonFaultError(
            f"the daemon gave an outcome outside the contract: {value}"
        ) from error


def rejected_report(reason: Reason, chunk_count: int) -> PutReport:
    """The report of a put that was not served at all."""
    return PutReport((PutResult(PutOutcome.REJECTED, reason),) * chunk_count)


def append_report(reply: store_pb2.AppendReply, item_count: int) -> AppendReport:
    """One result for each of ``item_count`` items."""
    if len(reply.results) != item_count:
        raise DaemonFaultError(
            f"the daemon answered {len(reply.results)} results for {item_count} items"
        )
    return AppendReport(
        tuple(
            AppendResult(result.length_tokens, reason_of(result.reason)) for result in reply.results
        )
    )


def unserved_report(reason: Reason, item_count: int) -> AppendReport:
    """The report of an append that was not served at all."""
    failed = AppendResult(0, reason or Reason.INTERNAL)
    return AppendReport((failed,) * item_count, is_served=False)


def matched_chunks(reply: store_pb2.MatchReply, key_count: int) -> int:
    """Length of the stored prefix of ``key_count`` keys."""
    if reply.matched_chunks > key_count:
        raise DaemonFaultError(
            f"the daemon matched {reply.matched_chunks} chunks of {key_count} keys"
        )
    return reply.matched_chunks


def pinned_keys(reply: store_pb2.PinReply, key_count: int) -> tuple[bool, ...]:
    """Of each of ``key_count`` keys whether its chunk is pinned."""
    if len(reply.is_pinned) != key_count:
        raise DaemonFaultError(
            f"the daemon answered for {len(reply.is_pinned)} of {key_count} keys"
        )
    return tuple(reply.is_pinned)


def changes(reply: store_pb2.ChangesReply, key_count: int) -> Changes:
    """The changes as a value, with an answer for each of ``key_count`` keys."""
    if len(reply.is_stored) != key_count:
        raise DaemonFaultError(
            f"the daemon answered for {len(reply.is_stored)} of {key_count} keys"
        )
    return Changes(
        epoch=reply.epoch,
        last_sequence=reply.last_sequence,
        changes=tuple(
            Change(_kind_of(change.kind), change.key, change.note) for change in reply.changes
        ),
        is_lost=reply.lost,
        has_more=reply.has_more,
        are_stored=tuple(reply.is_stored),
    )


def _kind_of(value: int) -> ChangeKind:
    try:
        return ChangeKind(value)
    except ValueError as error:
        raise DaemonFaultError(
            f"the daemon told of a change outside the contract: {value}"
        ) from error


def hint_report(reply: sequence_pb2.HintReply) -> HintReport:
    """What became of a change of the queue."""
    return HintReport(reply.taken, reply.version, tuple(reply.ignored))


def sequence_info(reply: sequence_pb2.Sequence) -> SequenceInfo:
    """The sequence as a value."""
    return SequenceInfo(
        name=reply.name,
        layout_id=reply.layout_id,
        keys=tuple(reply.keys),
        dropped_chunks=reply.dropped_chunks,
        tail_key=reply.tail_key,
        durable_tail_tokens=reply.durable_tail_tokens,
        tail_tokens=reply.tail_tokens,
        staged_tokens=reply.staged_tokens,
        durable_tokens=reply.durable_tokens,
        is_stopped=reply.stopped,
        is_ephemeral=reply.ephemeral,
        reason=reason_of(reply.reason),
    )
