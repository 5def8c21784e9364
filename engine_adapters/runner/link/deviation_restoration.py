"""Chooses the tokens of entries whose states differ most from those of the prompt (CacheBlend)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from engine_adapters.link.plan import LinkPlan, with_computed
from engine_adapters.link.rows import RowGroup, split_groups
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.link.entry_restoration import EntryRestoration
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, ScatteredSegment, Segment
from engine_adapters.runner.restore.target import Target

PROBED_LAYER = 1
"""The first layer whose keys and values depend on other tokens."""


class DeviationRestoration:
    """As ``Restoration``; loads entries, and then computes the first layer of the whole prompt.

    The keys and values that this gives the probed layer are compared with the stored ones. Those
    tokens of entries that deviate most are computed again. What was lost is computed in place
    before, because it is compared as well. The engine's thread only.
    """

    def __init__(
        self,
        entries: EntryRestoration,
        model: Model,
        plan: LinkPlan,
        target: Target,
        *,
        chosen_count: int,
        step_tokens: int,
    ) -> None:
        """``chosen_count`` tokens are chosen; ``step_tokens`` are computed at once."""
        self._entries = entries
        self._model = model
        self._plan = plan
        self._target = target
        self._chosen_count = chosen_count
        self._step_tokens = step_tokens
        self._computed_layer_tokens = 0
        self._is_over = False
        self._groups: tuple[RowGroup, ...] = ()
        self._work = self._run()

    @property
    def groups(self) -> tuple[RowGroup, ...]:
        """What there is to compute by what is in the cache, once it is over."""
        return self._groups if self._is_over else self._entries.groups

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``; ``position`` stays 0."""
        loading = self._entries.state
        return RestorationState(
            position=0,
            is_over=self._is_over,
            is_loading=loading.is_loading,
            is_waiting=loading.is_waiting,
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; asks for no tokens, but computes layers itself."""
        if not self._entries.state.is_over:
            self._entries.advance(token_budget, piece_tokens=piece_tokens)
            return 0
        room = piece_tokens * self._model.config.layer_count
        while room > 0 and not self._is_over:
            layer_tokens = next(self._work, None)
            self._is_over = layer_tokens is None
            self._computed_layer_tokens += layer_tokens or 0
            room -= layer_tokens or 0
        return 0

    def first_unstored(self) -> int:
        """As ``Restoration``; nothing of a linked prompt is saved."""
        return 0

    def begin_step(self, token_count: int) -> None:
        """As ``Restoration``."""

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``."""
        self._entries.wait(timeout_s)

    def report(self) -> RestoreReport:
        """As ``Restoration``; counts what was computed to choose."""
        return self._entries.report_of(
            self.groups, recomputed_layer_tokens=self._computed_layer_tokens
        )

    def close(self) -> None:
        """As ``Restoration``."""
        self._entries.close()

    def _run(self) -> Iterator[int]:
        """Yields tokens times layers that were computed."""
        *missing, _ = self._entries.groups
        rest = tuple(missing)
        while rest:
            first, rest = split_groups(rest, self._step_tokens)
            yield self._fill(first)
        deviations: list[Tensor] = []
        for first_position in range(0, self._plan.token_count, self._step_tokens):
            stop = min(first_position + self._step_tokens, self._plan.token_count)
            deviations.append(self._deviations(range(first_position, stop)))
            yield stop - first_position
        chosen = self._chosen(torch.cat(deviations))
        self._groups = (RowGroup(0, with_computed(self._plan, chosen).computed),)

    def _fill(self, groups: tuple[RowGroup, ...]) -> int:
        """Computes tokens in all layers, as those of their entries alone."""
        segments: list[Segment] = []
        for group in groups:
            segments.append(
                ScatteredSegment.of(
                    group.ranges,
                    request_id=-1,
                    first_row=segments[-1].rows.stop if segments else 0,
                    first_slot=self._target.first_slot,
                    first_key=group.first_key,
                )
            )
        positions = [n for group in groups for one in group.ranges for n in one]
        self._model.forward(
            [self._target.token_ids[position] for position in positions],
            segments,
            cache=self._target.cache,
            sink=NullSink(),
            logit_rows=(),
        )
        return len(positions) * self._model.config.layer_count

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
