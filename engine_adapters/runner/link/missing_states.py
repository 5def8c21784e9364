"""Computes states of entries that the store has lost, as those of their entries alone."""

from collections.abc import Generator, Mapping, Sequence

from torch import Tensor

from engine_adapters.link.plan import LinkPlan
from engine_adapters.link.rows import RowGroup, split_groups
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.rotary import rotate
from engine_adapters.runner.model.step import NullSink, ScatteredSegment, Segment
from engine_adapters.runner.restore.target import Target


def scattered_segments(groups: Sequence[RowGroup], *, first_slot: int) -> list[ScatteredSegment]:
    """The segments of a pass over some groups, in the order of rows."""
    segments: list[ScatteredSegment] = []
    for group in groups:
        segments.append(
            ScatteredSegment.of(
                group.ranges,
                request_id=-1,
                first_row=segments[-1].rows.stop if segments else 0,
                first_slot=first_slot,
                first_key=group.first_key,
            )
        )
    return segments


class _PlacedStates(NullSink):
    """Puts the states of one step into the cache of a prompt, wherever an entry stands there."""

    def __init__(self, model: Model, target: Target, firsts: Sequence[int]) -> None:
        """``firsts`` are the positions of the first token of the entry."""
        self._rotary = model.rotary
        self._target = target
        self._firsts = firsts
        self.first_token = 0
        """Number of the first row of the step among the entry's tokens; of its sink below 0."""

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Rotates the keys of the entry's own tokens at each of its places."""
        del hidden
        sink_rows = max(0, -self.first_token)
        keys, values = keys[sink_rows:], values[sink_rows:]
        for entry_first in self._firsts:
            first = entry_first + self.first_token + sink_rows
            if self._rotary is not None:
                keys_here = rotate(keys, self._rotary.between(first, first + len(keys)))
            else:
                keys_here = keys
            self._target.cache.write(layer, self._target.first_slot + first, keys_here, values)


class MissingStates:
    """Computes what is missing for one prompt, some tokens at once. The engine's thread only.

    Both ways yield tokens times layers that were computed.
    """

    def __init__(self, model: Model, plan: LinkPlan, target: Target, *, step_tokens: int) -> None:
        self._model = model
        self._plan = plan
        self._target = target
        self._step_tokens = step_tokens

    @property
    def layer_count(self) -> int:
        """Layers of the model."""
        return self._model.config.layer_count

    def in_place(self, groups: Sequence[RowGroup]) -> Generator[int]:
        """Computes groups at their places in the prompt."""
        rest = groups
        while rest:
            first, rest = split_groups(rest, self._step_tokens)
            positions = [n for group in first for one in group.ranges for n in one]
            self._model.forward(
                [self._target.token_ids[position] for position in positions],
                scattered_segments(first, first_slot=self._target.first_slot),
                cache=self._target.cache,
                sink=NullSink(),
                logit_rows=(),
            )
            yield len(positions) * self._model.config.layer_count

    def after_sinks(
        self, missing: Mapping[int, int], sinks: Mapping[str, Sequence[int]]
    ) -> Generator[int]:
        """Computes the first tokens of entries, each with its sink, which is in no prompt.

        ``missing`` has how many of them by the number of an entry in the plan, and ``sinks`` the
        token ids of the sink by its id.
        """
        counts: dict[str, int] = {}
        firsts: dict[str, list[int]] = {}
        for number, count in missing.items():
            entry = self._plan.entries[number]
            counts[entry.entry_id] = max(count, counts.get(entry.entry_id, 0))
            firsts.setdefault(entry.entry_id, []).append(entry.first_position)
        for entry_id, count in counts.items():
            first = firsts[entry_id][0]
            own_ids = self._target.token_ids[first : first + count]
            placed = _PlacedStates(self._model, self._target, firsts[entry_id])
            yield from self._alone([*sinks[entry_id], *own_ids], len(sinks[entry_id]), placed)

    def _alone(
        self, token_ids: Sequence[int], sink_count: int, placed: _PlacedStates
    ) -> Generator[int]:
        cache = self._model.make_cache(len(token_ids))
        for first in range(0, len(token_ids), self._step_tokens):
            step_ids = token_ids[first : first + self._step_tokens]
            segment = Segment(
                request_id=-1,
                first_row=0,
                token_count=len(step_ids),
                first_position=first,
                first_slot=0,
            )
            placed.first_token = first - sink_count
            self._model.forward(step_ids, [segment], cache=cache, sink=placed, logit_rows=())
            yield len(step_ids) * self._model.config.layer_count
