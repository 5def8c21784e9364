"""Chooses the tokens of entries whose states differ most from those of the prompt (CacheBlend)."""

from collections.abc import Generator

import torch
from torch import Tensor

from engine_adapters.link.plan import LinkPlan
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.target import Target

PROBED_LAYER = 1
"""The first layer whose keys and values depend on other tokens."""


class Deviations:
    """As ``Chooser``; computes the first layer of the whole prompt.

    The keys and values that this gives the probed layer are compared with the stored ones. Those
    tokens of entries that deviate most are chosen. The engine's thread only.
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

    def choose(self) -> Generator[int, None, list[int]]:
        """As ``Chooser``."""
        deviations: list[Tensor] = []
        for first_position in range(0, self._plan.token_count, self._step_tokens):
            stop = min(first_position + self._step_tokens, self._plan.token_count)
            deviations.append(self._deviations(range(first_position, stop)))
            yield stop - first_position
        return self._chosen(torch.cat(deviations))

    @torch.inference_mode()
    def _deviations(self, positions: range) -> Tensor:
        """[positions], float32: squared distances of keys and values at the probed layer.

        The positions before these went before.
        """
        target, count = self._target, len(positions)
        segment = Segment(
            request_id=-1,
            first_row=0,
            token_count=count,
            first_position=positions.start,
            first_slot=target.first_slot,
        )
        token_ids = target.token_ids[positions.start : positions.stop]
        step = self._model.begin_pass(token_ids, [segment], cache=target.cache, sink=NullSink())
        # Keys and values before the probed layer do not depend on other tokens: they stay.
        step.run(PROBED_LAYER)
        first_slot = target.first_slot + positions.start
        slots = slice(first_slot, first_slot + count)
        stored_keys = target.cache.keys[PROBED_LAYER, slots]
        stored_values = target.cache.values[PROBED_LAYER, slots]
        keys, values = torch.empty_like(stored_keys), torch.empty_like(stored_values)
        self._model.project(
            PROBED_LAYER, step.hidden, first_position=positions.start, keys=keys, values=values
        )
        of_keys = (keys - stored_keys).float().square().sum(dim=(1, 2))
        return of_keys + (values - stored_values).float().square().sum(dim=(1, 2))

    def _chosen(self, deviations: Tensor) -> list[int]:
        """The positions that deviate most, of those that would keep their states."""
        for one in self._plan.computed:
            deviations[one.start : one.stop] = -1.0
        chosen: list[int] = deviations.topk(self._chosen_count).indices.tolist()
        return chosen
