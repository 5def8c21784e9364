"""What can be loaded, against a search over everything that could be."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.conversation.history import dropped, make_cut, window
from engine_adapters.conversation.usable_states import UsableStates, usable_states
from kvstored_contract.keys import Cut

CHUNK_TOKENS = 4


def numbers_of(usable: UsableStates) -> list[int]:
    """The tokens of the pieces, by their positions; every position once."""
    found = {
        piece.first_position + row: piece.chunk * CHUNK_TOKENS + piece.first_row + row
        for piece in usable.pieces
        for row in range(piece.token_count)
    }
    assert sorted(found) == list(range(usable.token_count))
    return [found[position] for position in sorted(found)]


def test_a_whole_window_begins_inside_chunks() -> None:
    cut = make_cut((), 10, (range(1), range(6, 10)))
    usable = usable_states([cut], [True] * 3, stop=12, chunk_tokens=CHUNK_TOKENS)
    assert numbers_of(usable) == [0, *range(6, 12)]
    assert (usable.cut_count, usable.next_token) == (1, 12)
    assert [(piece.chunk, piece.first_row) for piece in usable.pieces] == [(0, 0), (1, 2), (2, 0)]


def test_states_that_are_lost_before_the_last_cut_are_computed_before_it() -> None:
    cut = make_cut((), 12, (range(6, 12),))
    usable = usable_states([cut], [True, True, False, True], stop=16, chunk_tokens=CHUNK_TOKENS)
    assert numbers_of(usable) == list(range(8))
    assert (usable.cut_count, usable.next_token) == (0, 8)


def test_no_window_before_a_cut_that_has_to_be_made_is_looked_at() -> None:
    """Bug: with many cuts that took the square of their number, on the engine's thread."""

    class Counted(list[Cut]):
        def __getitem__(self, index: Any) -> Any:
            looked.append(index)
            return super().__getitem__(index)

    looked: list[object] = []
    cuts: list[Cut] = []
    for number in range(1, 101):
        cuts.append(make_cut(cuts, 8 * number, (range(4, 8),)))
    usable = usable_states(
        Counted(cuts), [False] * 201, stop=804, chunk_tokens=CHUNK_TOKENS, cut_count_min=100
    )
    assert usable == UsableStates()
    assert len(looked) <= 2


def test_states_that_are_lost_after_it_are_computed_after_it() -> None:
    cut = make_cut((), 8, (range(4, 8),))
    usable = usable_states([cut], [False, True, True, False], stop=16, chunk_tokens=CHUNK_TOKENS)
    assert numbers_of(usable) == list(range(4, 12))
    assert (usable.cut_count, usable.next_token) == (1, 12)


def test_after_a_cut_that_keeps_nothing_nothing_before_it_is_needed() -> None:
    cut = make_cut((), 8, ())
    usable = usable_states([cut], [False] * 3, stop=12, chunk_tokens=CHUNK_TOKENS)
    assert usable == UsableStates(cut_count=1, next_token=8)


def test_states_may_end_before_the_last_cut() -> None:
    cut = make_cut((), 11, (range(4, 11),))
    usable = usable_states([cut], [True] * 2, stop=8, chunk_tokens=CHUNK_TOKENS)
    assert numbers_of(usable) == list(range(8))
    assert usable.cut_count == 0


def test_rows_that_a_short_chunk_does_not_have_were_loaded() -> None:
    """Bug: where a cut came later in the chunk that the stored tokens end in.

    Its last rows had not been saved, so that whatever lay there in memory was taken for states.
    """
    cut = make_cut((), 7, (range(3, 7),))
    usable = usable_states([cut], [True, True], stop=6, chunk_tokens=CHUNK_TOKENS)
    assert numbers_of(usable) == list(range(6))
    assert (usable.cut_count, usable.next_token) == (0, 6)


def test_without_states_everything_is_computed() -> None:
    assert usable_states((), (), stop=0, chunk_tokens=CHUNK_TOKENS) == UsableStates()


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 4), st.integers(0, 9)), max_size=4),
    st.lists(st.booleans(), max_size=14),
    st.integers(0, CHUNK_TOKENS - 1),
)
def test_nothing_better_could_be_loaded(
    events: list[tuple[int, int, int]], is_stored: list[bool], missing: int
) -> None:
    cuts: list[Cut] = []
    count = 0
    for added, sinks, dropped_count in events:
        count += added
        left = count - dropped(cuts)
        sinks = min(sinks, left)
        resumed = min(left, sinks + dropped_count)
        if resumed > sinks:
            cuts.append(make_cut(cuts, count, (range(sinks), range(resumed, left))))
    # The last chunk may be a short one, and what follows it was not saved.
    stop = max(0, min(count, len(is_stored) * CHUNK_TOKENS) - missing)
    usable = usable_states(cuts, is_stored, stop=stop, chunk_tokens=CHUNK_TOKENS)
    best = -1
    for made in range(len(cuts) + 1):
        first = cuts[made - 1].first_token if made else 0
        end = cuts[made].first_token if made < len(cuts) else stop
        for token in range(first, min(end, stop) + 1):
            needed = [number for one in window(cuts[:made], token) for number in one]
            if all(number < stop and is_stored[number // CHUNK_TOKENS] for number in needed):
                best = max(best, token)
    assert usable.next_token >= best
    loaded = cuts[: usable.cut_count]
    expected = [number for one in window(loaded, usable.next_token) for number in one]
    assert numbers_of(usable) == expected
    assert all(is_stored[piece.chunk] for piece in usable.pieces)
    assert all(number < stop for number in numbers_of(usable))
