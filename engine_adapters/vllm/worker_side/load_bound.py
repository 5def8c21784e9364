"""How long one load of a worker goes on, compared with computing what it brings."""

from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import LoadClock, LoadLimit, StepCosts, TokenRange

LOOK_S = 0.005
"""How often it is asked how many bytes have come, while no chunk does."""

SILENCE_S = 3.0
"""A store that brings no byte of a read for so long is not waited for, whatever computing costs:
one chunk of a healthy store, beside others, takes a small part of it."""


class LoadBound:
    """The limit of one load that a request waits for. One thread only.

    Before ``costs`` know what computing takes, only a silence of ``SILENCE_S`` ends it. What was
    waited for until then counts all the same. While the load ``waits_for_others`` no time passes
    for it: those have bounds of their own.
    """

    def __init__(
        self,
        tokens: TokenRange,
        *,
        byte_count: int,
        costs: StepCosts,
        clock: LoadClock,
        least_wait_s: float,
    ) -> None:
        self._tokens = tokens
        self._byte_count = byte_count
        self._costs = costs
        self._clock = clock
        self._least_wait_s = least_wait_s
        self._begun_s = self._looked_s = self._seen_s = clock.now_s
        self._excluded_s = 0.0
        self.waits_for_others = False
        """For the engine, or other ranks, from now to the next ``look``."""
        self._limit: LoadLimit | None = None
        self._loaded_to = tokens.first
        self._heard_s = self._begun_s
        self._heard_bytes = 0

    def look(self) -> None:
        """Before each step of the load: takes note of the time since the last one."""
        now_s = self._clock.now_s
        if self.waits_for_others:
            self._excluded_s += now_s - self._seen_s
        self._seen_s, self.waits_for_others = now_s, False

    def loaded(self, stop: int) -> None:
        """All tokens before ``stop`` have their states."""
        if self._limit is not None and stop > self._loaded_to:
            self._limit.gain(self._loaded_to, stop)
        self._loaded_to = max(self._loaded_to, stop)

    def is_waited_for(self, reader: SpanReader) -> bool:
        """Whether the rest comes sooner than it is computed, as far as anybody can know."""
        now_s = self._seen_s - self._excluded_s
        if now_s - self._looked_s < LOOK_S or self._loaded_to >= self._tokens.stop:
            return True
        self._looked_s = now_s
        arrived_bytes, is_reading = sum(reader.read_bytes()), reader.is_reading
        limit = self._limit or self._begin()
        if limit is None:
            # A load that waits for room in the arena has asked for nothing yet.
            if arrived_bytes > self._heard_bytes or not (is_reading and reader.spans):
                self._heard_s, self._heard_bytes = now_s, arrived_bytes
            return now_s - self._heard_s < SILENCE_S
        limit.look(now_s, arrived_bytes, is_reading=is_reading)
        return limit.is_waited_for(self._loaded_to, self._tokens.stop)

    def _begin(self) -> LoadLimit | None:
        compute = self._costs.compute
        if compute is None:
            return None
        self._limit = LoadLimit(
            compute,
            self._tokens,
            byte_count=self._byte_count,
            step_tokens=self._costs.step_tokens,
            least_wait_s=self._least_wait_s,
            now_s=self._begun_s,
        )
        if self._loaded_to > self._tokens.first:
            self._limit.gain(self._tokens.first, self._loaded_to)
        return self._limit
