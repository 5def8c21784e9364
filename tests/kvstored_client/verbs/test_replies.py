"""What replies mean, and which of them no daemon gives."""

from collections.abc import Callable

import pytest

from kvstored_client.errors import DaemonFaultError
from kvstored_client.values import (
    AppendResult,
    Change,
    ChangeKind,
    HintReport,
    PutOutcome,
    PutResult,
)
from kvstored_client.verbs import replies
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, sequence_pb2, store_pb2

FULL = common_pb2.Reason.ValueType(Reason.STORE_FULL)
OUTSIDE = 99
"""A number that the contract gives no meaning."""


def put_reply(outcome: int = PutOutcome.REJECTED) -> store_pb2.PutReply:
    result = store_pb2.PutResult(outcome=store_pb2.PutOutcome.ValueType(outcome), reason=FULL)
    return store_pb2.PutReply(results=[result])


def changes_reply(kind: int = ChangeKind.STORED) -> store_pb2.ChangesReply:
    change = store_pb2.Change(kind=store_pb2.ChangeKind.ValueType(kind), key=b"k", note=b"n")
    return store_pb2.ChangesReply(
        epoch=3, last_sequence=7, lost=True, has_more=True, changes=[change], is_stored=[True]
    )


def test_a_change_of_a_queue_has_its_answer() -> None:
    reply = sequence_pb2.HintReply(taken=True, version=3, ignored=["a"])
    assert replies.hint_report(reply) == HintReport(True, 3, ("a",))


def test_a_put_has_a_result_for_each_chunk() -> None:
    report = replies.put_report(put_reply(), 1)
    assert report.results == (PutResult(PutOutcome.REJECTED, Reason.STORE_FULL),)


def test_a_put_that_was_not_served_rejects_all() -> None:
    report = replies.rejected_report(Reason.INTERNAL, 2)
    assert report.results == (PutResult(PutOutcome.REJECTED, Reason.INTERNAL),) * 2


def test_an_append_has_a_result_for_each_item() -> None:
    reply = store_pb2.AppendReply(results=[store_pb2.AppendResult(length_tokens=5, reason=FULL)])
    report = replies.append_report(reply, 1)
    assert report.results == (AppendResult(5, Reason.STORE_FULL),)
    assert report.is_served


@pytest.mark.parametrize("reason", [Reason.UNSPECIFIED, Reason.INTERNAL])
def test_an_append_that_was_not_served_always_has_a_reason(reason: Reason) -> None:
    report = replies.unserved_report(reason, 2)
    assert report.results == (AppendResult(0, Reason.INTERNAL),) * 2
    assert not report.is_served


def test_a_match_is_a_prefix_of_the_keys() -> None:
    assert replies.matched_chunks(store_pb2.MatchReply(matched_chunks=2), 2) == 2


def test_a_pin_answers_for_each_key() -> None:
    reply = store_pb2.PinReply(is_pinned=[True, False])
    assert replies.pinned_keys(reply, 2) == (True, False)


def test_changes_are_values() -> None:
    changes = replies.changes(changes_reply(), 1)
    assert (changes.epoch, changes.last_sequence) == (3, 7)
    assert (changes.is_lost, changes.has_more, changes.are_stored) == (True, True, (True,))
    assert changes.changes == (Change(ChangeKind.STORED, b"k", b"n"),)


def test_a_sequence_is_a_value() -> None:
    reply = sequence_pb2.Sequence(
        name="s",
        layout_id=b"l",
        keys=[b"a", b"b"],
        dropped_chunks=1,
        tail_key=b"t",
        durable_tail_tokens=2,
        tail_tokens=3,
        staged_tokens=4,
        durable_tokens=5,
        stopped=True,
        ephemeral=True,
        reason=FULL,
    )
    info = replies.sequence_info(reply)
    assert (info.name, info.layout_id, info.keys, info.tail_key) == ("s", b"l", (b"a", b"b"), b"t")
    assert (info.dropped_chunks, info.durable_tail_tokens, info.tail_tokens) == (1, 2, 3)
    assert (info.staged_tokens, info.durable_tokens) == (4, 5)
    assert (info.is_stopped, info.is_ephemeral, info.reason) == (True, True, Reason.STORE_FULL)


@pytest.mark.parametrize(
    "read",
    [
        lambda: replies.put_report(put_reply(), 2),
        lambda: replies.put_report(put_reply(OUTSIDE), 1),
        lambda: replies.append_report(store_pb2.AppendReply(), 1),
        lambda: replies.matched_chunks(store_pb2.MatchReply(matched_chunks=3), 2),
        lambda: replies.pinned_keys(store_pb2.PinReply(is_pinned=[True]), 2),
        lambda: replies.changes(changes_reply(), 2),
        lambda: replies.changes(changes_reply(OUTSIDE), 1),
    ],
    ids=["results", "outcome", "items", "prefix", "pins", "answers", "kind"],
)
def test_a_reply_that_cannot_be_is_the_daemons_fault(read: Callable[[], object]) -> None:
    with pytest.raises(DaemonFaultError, match="the daemon "):
        read()
