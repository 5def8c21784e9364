"""What a crash may leave of a sequence.

Fails when `SequenceModel.cut` keeps what was flushed behind the cut (seen: a_cut_takes_...), when
`problem` takes any length for one that was flushed (seen: only_what_was_flushed_...), does not
compare keys (seen: other_tokens_...), or asks for nothing (seen: an_acknowledged_flush_...), and
when `judge` takes the absence of a sequence for any of its possibilities (seen: it_is_there_...).
"""

import pytest

from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.faults.sequence_model import RecoveredSequence, SequenceModel, judge
from tests.support.rows import Rows

LAYOUT = StateLayout(
    model="model", dtype="f", layers=(LayerState(StateKind.KV, 8),), chunk_tokens=4
)
ROWS = Rows(LAYOUT)
TOKENS = tuple(range(11))


def model(length: int, *, safe: int = 0, flushed: tuple[int, ...] = ()) -> SequenceModel:
    return SequenceModel(
        chunk_tokens=4, tokens=TOKENS[:length], safe=safe, flushed=frozenset(flushed)
    )


def found(length: int, tokens: tuple[int, ...] = TOKENS) -> RecoveredSequence:
    part = tokens[:length]
    return RecoveredSequence(
        length_tokens=length, keys=tuple(ROWS.keys(part)), tail_key=ROWS.tail_key(part)
    )


def is_possible(one: SequenceModel, length: int) -> bool:
    return judge((one,), found(length), ROWS)[1] is None


def lengths(one: SequenceModel) -> set[int]:
    return {length for length in range(len(TOKENS) + 1) if is_possible(one, length)}


def test_an_acknowledged_flush_stays() -> None:
    begun = model(6).flush_begun()
    assert lengths(begun) == {0, 4, 6}
    assert lengths(begun.flush_done()) == {6}
    assert lengths(begun.flush_done().appended(TOKENS[6:])) == {6, 8}


def test_only_what_was_flushed_ends_inside_a_chunk() -> None:
    assert lengths(model(11)) == {0, 4, 8}
    assert lengths(model(11, flushed=(9, 10))) == {0, 4, 8, 9, 10}


@pytest.mark.parametrize(
    ("length", "safe", "to", "expected"),
    [
        (7, 6, 6, {6}),
        (7, 6, 5, {4}),
        (7, 6, 3, {0}),
        (11, 6, 7, {4, 6}),
        (11, 10, 9, {8}),
        (11, 6, 9, {6, 8}),
    ],
    ids=[
        "behind it",
        "inside it",
        "before it",
        "inside the next",
        "in its tail",
        "in another tail",
    ],
)
def test_a_cut_takes_what_was_flushed_behind_it(
    length: int, safe: int, to: int, expected: set[int]
) -> None:
    assert lengths(model(length, safe=safe, flushed=(safe,)).cut(to)) == expected


def test_a_fork_and_its_original_keep_complete_chunks() -> None:
    assert lengths(model(11).settled()) == {8}
    assert lengths(model(11).forked(0)) == {8}
    assert lengths(model(11).forked(1)) == {4}
    assert lengths(model(11, safe=10, flushed=(10,)).forked(0)) == {10}


def test_a_start_leaves_what_it_found() -> None:
    assert lengths(model(11, flushed=(6,)).recovered(6)) == {6}
    assert lengths(model(11, safe=4, flushed=(6, 9)).left(6)) == {4, 6}


def test_other_tokens_are_never_found() -> None:
    others = (*TOKENS[:5], 99, *TOKENS[6:])
    _, problem = judge((model(6, flushed=(6,)),), found(6, others), ROWS)
    assert problem == "its 6 tokens are not named by their chunks"
    assert judge((model(6, flushed=(6,)),), found(4, others), ROWS)[1] is None


def test_it_is_there_unless_it_may_be_absent() -> None:
    assert judge((model(4),), None, ROWS) == (None, "it is not there")
    assert judge((None,), found(0), ROWS) == (None, "it should not be there")
    assert judge((None, model(4)), None, ROWS) == (None, None)
    assert judge((None, model(4)), found(4), ROWS) == (model(4), None)


def test_a_model_is_read_as_it_was_written() -> None:
    one = model(6, safe=4, flushed=(5, 6))
    assert SequenceModel.decode(one.encode()) == one


def test_each_chunk_has_the_rows_of_its_tokens() -> None:
    one = model(11, flushed=(6,))
    assert list(one.chunk_slices(found(6), ROWS)) == [
        ROWS.slices(TOKENS[:4]),
        ROWS.slices(TOKENS[4:6]),
    ]
