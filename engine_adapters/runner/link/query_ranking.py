"""Chooses the tokens of entries to which the query attends most (ProphetKV)."""

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from engine_adapters.link.plan import LinkPlan
from engine_adapters.link.ranking import query_positions, ranked_positions
from engine_adapters.link.rows import RowGroup, split_groups
from engine_adapters.runner.link.missing_states import scattered_segments
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink
from engine_adapters.runner.restore.target import Target


def asked_layers(layer_count: int) -> range:
    """The layers whose attention counts: the middle half, at least one.

    The first ones attend to what is near, and the last ones prepare the next token.
    """
    first = min(layer_count // 4, layer_count - 1)
    return range(first, max(first + 1, layer_count - layer_count // 4))


class QueryRanking:
    """As ``Chooser``; computes what the plan says once, and looks where the query attends.

    The query are the new tokens at the end of the prompt. No layer after those that count is
    computed. The engine's thread only.
    """

    def __init__(
        self, model: Model, plan: LinkPlan, target: Target, *, chosen_count: int, step_tokens: int
    ) -> None:
        """``chosen_count`` tokens are chosen; ``step_tokens`` are computed at once."""
        self._model = model
        self._plan = plan
        self._target = target
        self._chosen_count = chosen_count
        self._step_tokens = step_tokens
        self._query_first = query_positions(plan).start
        self._layers = asked_layers(model.config.layer_count)

    def choose(self) -> Generator[int, None, list[int]]:
        """As ``Chooser``."""
        scores = torch.zeros(self._plan.token_count, dtype=torch.float32)
        rest: Sequence[RowGroup] = (RowGroup(0, self._plan.computed),)
        while rest:
            first, rest = split_groups(rest, self._step_tokens)
            yield self._attend(first, scores)
        return ranked_positions(self._plan, scores.tolist(), self._chosen_count)

    @torch.inference_mode()
    def _attend(self, groups: Sequence[RowGroup], scores: Tensor) -> int:
        """Computes tokens; adds to ``scores`` what the query among them attends to."""
        target = self._target
        positions = [n for group in groups for one in group.ranges for n in one]
        step = self._model.begin_pass(
            [target.token_ids[position] for position in positions],
            scattered_segments(groups, first_slot=target.first_slot),
            cache=target.cache,
            sink=NullSink(),
        )
        first_row = sum(position < self._query_first for position in positions)
        asking = torch.tensor(positions[first_row:], dtype=torch.int64, device=self._model.device)
        key_count = positions[-1] + 1
        slots = slice(target.first_slot, target.first_slot + key_count)
        for layer in range(self._layers.stop):
            hidden = step.hidden[first_row:]
            step.run(layer + 1)
            if layer in self._layers and len(asking):
                keys = target.cache.keys[layer, slots]
                received = self._model.query_attention(layer).received(hidden, asking, keys)
                scores[:key_count] += received.cpu()
        return len(positions) * self._layers.stop
