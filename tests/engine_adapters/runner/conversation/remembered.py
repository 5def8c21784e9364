"""A conversation by hand that several tests have, computed once."""

from collections.abc import Sequence

from torch import Tensor
from transformers import LlamaForCausalLM

from tests.engine_adapters.runner.conversation.hand_cut import HandCutConversation

Step = tuple[object, ...]
Memory = dict[tuple[Step, ...], tuple["RememberedConversation", list[int], list[Tensor]]]
"""Of one model: what a turn left and said, by all that came before it."""


class RememberedConversation(HandCutConversation):
    """It depends on what is said and cut and on nothing else, so a turn of a test that restores in
    another way is the same, and is taken from ``memory``."""

    def __init__(self, model: LlamaForCausalLM, *, window: int, sinks: int, memory: Memory) -> None:
        super().__init__(model, window=window, sinks=sinks)
        self._memory = memory
        self._steps: tuple[Step, ...] = ((window, sinks),)

    def turn(
        self, prompt: list[int], new_tokens: int, *, said: Sequence[int] = ()
    ) -> tuple[list[int], list[Tensor]]:
        """The answer, and the logits of each of its tokens."""
        steps = (*self._steps, (tuple(prompt), new_tokens, tuple(said)))
        if steps not in self._memory:
            answer, logits = super().turn(prompt, new_tokens, said=said)
            self._memory[steps] = self.copied(), answer, logits
        left, answer, logits = self._memory[steps]
        self.llama, self._pending = left.llama.copied(), list(left._pending)
        self.cut_count, self._steps = left.cut_count, steps
        return list(answer), list(logits)

    def keep(self, positions: list[int]) -> None:
        """A cut between two turns, or one that a turn makes on the way."""
        super().keep(positions)
        self._steps = (*self._steps, tuple(positions))
