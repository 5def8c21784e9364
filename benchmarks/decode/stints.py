"""Shows the steps of one decoding batch to several sinks in turn."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from engine_adapters.runner.model.step import Segment, StateSink

_TOKEN_BITS = 31


@dataclass(slots=True)
class _Audience:
    """One sink, the steps that it was shown, and in which of them its sequences began."""

    sink: StateSink
    step: int = 0
    begun_at: dict[int, int] = field(default_factory=dict)


class StintSink:
    """A sink of which each step is for one of ``sinks``, as if that one saw all there are.

    Each has sequences of its own: their positions count the steps that it was shown, their
    token ids are random, so that no chunk is stored already, and they begin spread over its
    first ``lead_steps`` steps, so that they do not all fill their chunks in the same one. None
    is shown more than ``steps_max``. One thread only.
    """

    def __init__(
        self,
        sinks: Mapping[str, StateSink],
        generator: random.Random,
        *,
        lead_steps: int,
        steps_max: int,
    ) -> None:
        self._audiences = {name: _Audience(sink) for name, sink in sinks.items()}
        self._current = next(iter(self._audiences.values()))
        self._generator = generator
        self._lead_steps = lead_steps
        self._steps_max = steps_max

    def show(self, name: str) -> None:
        """The next steps are for this one."""
        self._current = self._audiences[name]

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Ignored: the sequences of the sinks begin later."""

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Shows those segments whose sequence has begun."""
        current = self._current
        for place, segment in enumerate(segments):
            begins_at = place * self._lead_steps // len(segments)
            if current.step >= begins_at and segment.request_id not in current.begun_at:
                self._begin(segment.request_id)
        shown = [
            replace(segment, first_position=current.step - begun_at)
            for segment in segments
            if (begun_at := current.begun_at.get(segment.request_id)) is not None
        ]
        current.step += 1
        current.sink.begin_step(shown)

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Passes the states on."""
        self._current.sink.take(layer, hidden, keys, values)

    def end_step(self) -> None:
        """Passes it on."""
        self._current.sink.end_step()

    def abandon_step(self) -> None:
        """Passes it on."""
        self._current.sink.abandon_step()

    def end_request(self, request_id: int) -> None:
        """Ends the sequence of every sink for which it had begun."""
        for audience in self._audiences.values():
            if audience.begun_at.pop(request_id, None) is not None:
                audience.sink.end_request(request_id)

    def _begin(self, request_id: int) -> None:
        current = self._current
        current.begun_at[request_id] = current.step
        token_ids = [self._generator.getrandbits(_TOKEN_BITS) for _ in range(self._steps_max)]
        current.sink.begin_request(request_id, token_ids, 0)
