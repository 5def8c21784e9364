"""A conversation as it must go on, computed without a store and cut by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from torch import Tensor

from tests.engine_adapters.runner.conversation.hand_cut import HandCutConversation
from tests.engine_adapters.runner.conversation.lab import LOGITS_EXACT


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A cut to the positions ``kept``, if there is one, then a prompt with its answer."""

    name: str
    kept: tuple[range, ...] | None
    prompt: list[int]
    new_tokens: int


@dataclass(slots=True, kw_only=True)
class Spoken:
    """All tokens that were said, how many cuts the store knows, and the window by hand."""

    by_hand: HandCutConversation
    token_ids: list[int] = field(default_factory=list)
    cuts: int = 0
    turns: int = 0

    def copied(self) -> Self:
        """One that goes on by itself; it has had no turns of its own."""
        return type(self)(
            by_hand=self.by_hand.copied(), token_ids=list(self.token_ids), cuts=self.cuts
        )

    def foreseen(self, turn: Turn) -> "Foreseen":
        """What must come of a turn."""
        cut = self.by_hand.copied()
        if turn.kept is not None:
            cut.keep([position for one in turn.kept for position in one])
        after = cut.copied()
        answer, logits = after.turn(turn.prompt, turn.new_tokens)
        return Foreseen(turn=turn, cut=cut, after=after, answer=answer, logits=logits)

    def has_cut(self, foreseen: "Foreseen") -> None:
        """The cut before a turn has happened, and not the turn."""
        self.by_hand = foreseen.cut
        self.cuts += 1

    def has_said(self, foreseen: "Foreseen", answer: Sequence[int], cuts: int) -> None:
        """The turn has happened; fails unless its answer is the one that must come."""
        self.by_hand = foreseen.checked(list(answer))
        self.token_ids += [*foreseen.turn.prompt, *answer]
        self.cuts = cuts
        self.turns += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A turn with its answer, and the window before it and after it."""

    turn: Turn
    cut: HandCutConversation
    after: HandCutConversation
    answer: list[int]
    logits: list[Tensor]

    def checked(self, answer: list[int]) -> HandCutConversation:
        """The window after this answer.

        Where two tokens are as probable as each other, as far as float32 can tell, either may be
        said; everything after that must follow from the one that was.
        """
        if answer == self.answer:
            return self.after
        assert len(answer) == len(self.answer)
        after = self.cut.copied()
        _, logits = after.turn(self.turn.prompt, len(answer), said=answer)
        for token_id, each in zip(answer, logits, strict=True):
            assert each.max() - each[token_id] < LOGITS_EXACT, (answer, self.answer)
        return after
