"""What is served of a chunk that the record of a sequence names.

Fails when `chunk_problem` compares no bytes (seen: other_bytes_...), or takes any absence for an
eviction (seen: what_was_never_durable_..., what_was_acked_...).
"""

from tests.faults.power.marks import Ledger, Mark, MarkKind, Promise
from tests.faults.power.recovered import chunk_problem

ROWS_OF_LAYERS = [b"aaaa", b"bbbb"]


def promise_after(*kinds: MarkKind) -> Promise:
    ledger = Ledger()
    for kind in kinds:
        ledger.take(Mark(kind, 1))
    return ledger.promises[1]


DURABLE = promise_after(MarkKind.PUT, MarkKind.DURABLE)


def test_the_bytes_of_a_short_chunk_are_the_first_of_its_slices() -> None:
    assert chunk_problem([b"aaaa....", b"bbbb...."], ROWS_OF_LAYERS, DURABLE) is None


def test_other_bytes_are_never_served() -> None:
    cases: list[list[bytes | None]] = [[b"aaaa", b"bbba"], [None, b"aaaa"]]
    for slices in cases:
        problem = chunk_problem(slices, ROWS_OF_LAYERS, Promise())
        assert problem == "it has other bytes than were appended there"


def test_what_was_acked_is_lost_only_to_an_eviction() -> None:
    gone: list[bytes | None] = [None, None]
    assert chunk_problem(gone, ROWS_OF_LAYERS, DURABLE) == "it was durable and is lost"
    leaving = promise_after(MarkKind.PUT, MarkKind.DURABLE, MarkKind.DELETE)
    assert chunk_problem(gone, ROWS_OF_LAYERS, leaving) is None


def test_what_was_never_durable_must_not_be_named() -> None:
    written = promise_after(MarkKind.PUT)
    problem = chunk_problem([b"aaaa", None], ROWS_OF_LAYERS, written)
    assert problem == "it is named and was never durable"
    again = promise_after(MarkKind.PUT, MarkKind.DURABLE, MarkKind.DELETE, MarkKind.PUT)
    assert chunk_problem([None, None], ROWS_OF_LAYERS, again) is None
