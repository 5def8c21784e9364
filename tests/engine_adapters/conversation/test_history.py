"""What is left after cuts, against lists that are cut by hand."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import dropped, make_cut, merged, overflow_cut, window
from kvstored_contract.keys import Cut


class Lab:
    """Numbers of the tokens that are left, one by one."""

    def __init__(self) -> None:
        self.left: list[int] = []
        self.count = 0
        self.cuts: list[Cut] = []

    def add(self, count: int) -> None:
        self.left += range(self.count, self.count + count)
        self.count += count

    def cut(self, kept: list[range]) -> None:
        self.cuts.append(make_cut(self.cuts, self.count, kept))
        self.left = [self.left[position] for one in kept for position in one]

    def check(self) -> None:
        found = [number for one in window(self.cuts, self.count) for number in one]
        assert found == self.left
        assert self.count - dropped(self.cuts) == len(self.left)


def kept_of(mask: list[bool], count: int) -> list[range]:
    """Each position of the mask that is set, as a range of its own."""
    return [range(at, at + 1) for at, keeps in enumerate(mask[:count]) if keeps]


@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.booleans(), max_size=30)), max_size=6))
def test_windows_are_what_lists_cut_by_hand_are(
    events: list[tuple[int, list[bool]]],
) -> None:
    lab = Lab()
    for count, mask in events:
        lab.add(count)
        lab.check()
        kept = kept_of(mask, len(lab.left))
        if len(kept) < len(lab.left):
            lab.cut(kept)
            lab.check()
            assert all(
                a.stop < b.start
                for a, b in zip(lab.cuts[-1].kept, lab.cuts[-1].kept[1:], strict=False)
            )


def test_ranges_that_touch_are_one() -> None:
    assert merged([range(2), range(2, 5), range(5, 5), range(6, 7)]) == (range(5), range(6, 7))


@pytest.mark.parametrize(
    "kept",
    [
        [range(9)],
        [range(4, 6), range(2)],
        [range(3), range(2, 6)],
        [range(0, 8, 2)],
        [range(8)],
        [range(4), range(4, 8)],
    ],
)
def test_what_is_no_cut_of_eight_tokens_is_refused(kept: list[range]) -> None:
    with pytest.raises(ConversationError):
        make_cut((), 8, kept)


def test_a_cut_before_an_earlier_one_is_refused() -> None:
    with pytest.raises(ConversationError, match="before the one at token 8"):
        make_cut([make_cut((), 8, [])], 7, [])


def test_the_first_half_is_dropped() -> None:
    cut = overflow_cut((), 8, new_count=1, window_tokens=8, sink_tokens=0)
    assert cut == Cut(first_token=8, dropped_count=4, kept=(range(4, 8),))
    # Halves of what is left: of 9 tokens 4 stay.
    cut = overflow_cut((), 9, new_count=1, window_tokens=9, sink_tokens=0)
    assert cut is not None
    assert cut.kept == (range(5, 9),)


def test_sinks_stay() -> None:
    cut = overflow_cut((), 10, new_count=1, window_tokens=10, sink_tokens=2)
    assert cut == Cut(first_token=10, dropped_count=4, kept=(range(2), range(6, 10)))


def test_where_there_is_room_nothing_is_cut() -> None:
    assert overflow_cut((), 7, new_count=1, window_tokens=8, sink_tokens=0) is None


@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 5))
def test_new_tokens_fit_after_the_cut(count: int, new_count: int, sinks: int) -> None:
    window_tokens = 40
    earlier = [make_cut((), 20, [range(5)])]
    first_token = 20 + count
    assume(min(sinks, 5 + count) + new_count <= window_tokens)
    cut = overflow_cut(
        earlier,
        first_token,
        new_count=new_count,
        window_tokens=window_tokens,
        sink_tokens=sinks,
    )
    cuts = earlier if cut is None else [*earlier, cut]
    left = first_token - dropped(cuts)
    assert left + new_count <= window_tokens
    assert (cut is None) == (5 + count + new_count <= window_tokens)


def test_new_tokens_that_never_fit_are_refused() -> None:
    with pytest.raises(ConversationError, match="8 new tokens and the first 2 ones exceed"):
        overflow_cut((), 5, new_count=8, window_tokens=9, sink_tokens=2)
