"""Token ids and cuts of a conversation as 32-bit words: what the store keeps of them. Pure.

Words are only ever added. Those of a turn are its cuts and its new token ids, and in the end
TURN_END: before that word is there the turn has not happened. What a writer left unfinished is
made void by ABANDONED.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.conversation.errors import ConversationError
from kvstored_contract.keys import Cut

TURN_END = 2**32 - 1
"""Everything before it counts."""
ABANDONED = 2**32 - 2
"""What follows the last TURN_END does not count."""
CUT = 2**32 - 3
"""Followed by first_token, dropped_count, the number of kept ranges, and the bounds of each."""

TOKEN_IDS = CUT
"""Token ids are below this."""
CUT_WORDS = 4
"""Words of a cut that keeps nothing."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the words of a conversation say: ``token_ids`` and ``cuts`` of its finished turns.

    ``has_rest``: words of a turn that never ended follow.
    """

    token_ids: tuple[int, ...] = ()
    cuts: tuple[Cut, ...] = ()
    has_rest: bool = False


def turn_words(token_ids: Sequence[int], cuts: Sequence[Cut]) -> list[int]:
    """The words of a turn; raises ConversationError for what is no token id."""
    if not all(0 <= token_id < TOKEN_IDS for token_id in token_ids):
        raise ConversationError(f"token ids are 0 to {TOKEN_IDS - 1}")
    words: list[int] = []
    for cut in cuts:
        words += [CUT, cut.first_token, cut.dropped_count, len(cut.kept)]
        words += [bound for kept in cut.kept for bound in (kept.start, kept.stop)]
    return [*words, *token_ids, TURN_END]


def told_by(words: Sequence[int]) -> Told:
    """What words say."""
    token_ids: list[int] = []
    cuts: list[Cut] = []
    start = 0
    for index, word in enumerate(words):
        if word == TURN_END:
            _add_turn(words[start:index], token_ids, cuts)
        if word in (TURN_END, ABANDONED):
            start = index + 1
    return Told(tuple(token_ids), tuple(cuts), has_rest=start < len(words))


def _add_turn(words: Sequence[int], token_ids: list[int], cuts: list[Cut]) -> None:
    while words and words[0] == CUT:
        first_token, dropped_count, kept_count = words[1:CUT_WORDS]
        stop = CUT_WORDS + 2 * kept_count
        bounds = words[CUT_WORDS:stop]
        kept = tuple(map(range, bounds[::2], bounds[1::2]))
        cuts.append(Cut(first_token=first_token, dropped_count=dropped_count, kept=kept))
        words = words[stop:]
    token_ids += words
