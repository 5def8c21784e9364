from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.words import ABANDONED, CUT, TURN_END, Told, told_by, turn_words
from kvstored_contract.keys import Cut

CUTS = (
    Cut(first_token=3, dropped_count=3),
    Cut(first_token=9, dropped_count=4, kept=(range(2), range(3, 5))),
)


@dataclass(frozen=True)
class Turn:
    token_ids: tuple[int, ...]
    cuts: tuple[Cut, ...]
    kept_words: int | None
    """How many words a writer that died has left; None where it ended."""


turns = st.lists(
    st.builds(
        Turn,
        st.lists(st.integers(0, CUT - 1), max_size=5).map(tuple),
        st.lists(st.sampled_from(CUTS), max_size=2).map(tuple),
        st.one_of(st.none(), st.integers(1, 9)),
    ),
    max_size=6,
)


def test_words_are_what_the_documentation_says() -> None:
    assert turn_words([7, 8], CUTS[1:]) == [CUT, 9, 4, 2, 0, 2, 3, 5, 7, 8, TURN_END]


@given(turns)
def test_finished_turns_are_told_and_no_other(made: list[Turn]) -> None:
    words: list[int] = []
    token_ids: list[int] = []
    cuts: list[Cut] = []
    for turn in made:
        if told_by(words).has_rest:
            words.append(ABANDONED)
        added = turn_words(turn.token_ids, turn.cuts)
        if turn.kept_words is not None:
            added = added[:-1][: turn.kept_words]
        else:
            token_ids += turn.token_ids
            cuts += turn.cuts
        words += added
        told = told_by(words)
        assert told == Told(tuple(token_ids), tuple(cuts), has_rest=told.has_rest)
        assert told.has_rest == (bool(added) and turn.kept_words is not None)


@pytest.mark.parametrize("token_id", [-1, CUT])
def test_what_is_no_token_is_refused(token_id: int) -> None:
    with pytest.raises(ConversationError, match="token ids are 0 to"):
        turn_words([token_id], ())
