"""What must and what may be read at one moment of the log.

Fails when `Ledger.take` keeps a promise while its chunk is being deleted (seen:
a_deletion_takes_...), forgets what was put since a deletion began (seen:
what_is_put_behind_...), takes any ack for a promise (seen: an_ack_during_...), or does not hear
what a sequence may be (seen: a_sequence_may_be_...).
"""

from tests.faults.power.marks import (
    Ledger,
    Mark,
    MarkKind,
    Promise,
    SequenceMark,
    SequenceVerb,
    parse_mark,
)
from tests.faults.sequence_model import SequenceModel


def promise_after(*marks: tuple[MarkKind, int]) -> Promise:
    ledger = Ledger()
    for kind, version in marks:
        ledger.take(Mark(kind, 7, version))
    return ledger.promises[7]


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = Mark(MarkKind.DURABLE, 3, 2)
    assert parse_mark(mark.encode()) == mark


def test_a_sequences_mark_is_read_as_it_was_written() -> None:
    model = SequenceModel(chunk_tokens=4, tokens=(1, 2, 3), safe=2, flushed=frozenset({2}))
    mark = SequenceMark(SequenceVerb.CREATE, "a", (None, model), is_answer=False)
    assert parse_mark(mark.encode()) == mark


def test_a_sequence_may_be_what_its_last_mark_says() -> None:
    begun = SequenceModel(chunk_tokens=4, tokens=(1, 2, 3)).flush_begun()
    ledger = Ledger()
    ledger.take(SequenceMark(SequenceVerb.FLUSH, "a", (begun,), is_answer=False))
    assert (ledger.sequences, ledger.answer_count) == ({"a": (begun,)}, 0)
    done = begun.flush_done()
    ledger.take(SequenceMark(SequenceVerb.FLUSH, "a", (done,), is_answer=True))
    assert (ledger.sequences, ledger.answer_count) == ({"a": (done,)}, 1)


def test_an_ack_makes_a_promise() -> None:
    begun = promise_after((MarkKind.PUT, 1))
    assert (begun.required, begun.allowed) == (None, frozenset({1}))
    acked = promise_after((MarkKind.PUT, 1), (MarkKind.DURABLE, 1))
    assert (acked.required, acked.allowed) == (1, frozenset({1}))


def test_a_deletion_takes_the_promise_back() -> None:
    put = ((MarkKind.PUT, 1), (MarkKind.DURABLE, 1))
    begun = promise_after(*put, (MarkKind.DELETE, 0))
    assert (begun.required, begun.allowed) == (None, frozenset({1}))
    done = promise_after(*put, (MarkKind.DELETE, 0), (MarkKind.DELETED, 0))
    assert (done.required, done.allowed) == (None, frozenset())


def test_what_is_put_behind_a_deletion_stays() -> None:
    put = ((MarkKind.PUT, 1), (MarkKind.DURABLE, 1), (MarkKind.DELETE, 0), (MarkKind.PUT, 2))
    assert promise_after(*put).allowed == {1, 2}
    assert promise_after(*put, (MarkKind.DELETED, 0)).allowed == {2}


def test_an_ack_during_a_deletion_promises_nothing() -> None:
    promise = promise_after((MarkKind.PUT, 1), (MarkKind.DELETE, 0), (MarkKind.DURABLE, 1))
    assert promise.required is None
