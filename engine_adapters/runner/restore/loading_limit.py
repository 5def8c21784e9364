"""How long one restoration goes on with loading: what was measured of it, told to its stake."""

import math
from collections.abc import Callable
from typing import Self

from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import (
    ComputeCost,
    LayerRates,
    LoadShare,
    Rates,
    ReadMeter,
    ReadPace,
    Stake,
    Verdict,
)
from engine_adapters.restore.source import SOURCE_OF
from engine_adapters.restore.stake import BLIND_SHARE, STAKE_SHARE
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.states.state_format import StateFormat

PACE_SHARE = 64
"""The pace of a reader is that of the last one part in so many of a history."""


class LoadingLimit:
    """The stake and the pace of one restoration. One thread only.

    Without ``compute``, what computing costs, nothing limits it but the restorer's time-out.
    ``rates`` hears how long steps really take, and ``layer_rates`` what layers and reads do; all
    restorations of a restorer share both. Its seconds are those of ``share``: restorations that
    load together share the store, as they would share the engine.
    """

    def __init__(
        self,
        state_format: StateFormat,
        token_count: int,
        *,
        compute: ComputeCost | None,
        rates: Rates,
        least_wait_s: float,
        layer_rates: LayerRates | None = None,
        is_on_cpu: bool = True,
        clock: Callable[[], float],
    ) -> None:
        self._format = state_format
        self._compute = compute
        self._rates = rates
        self._stake: Stake | None = None
        self._clock = clock
        self.share: LoadShare = rates.loads.begin(clock)
        """Ended with the restoration: the others have its part of the time then."""
        self._looked_s = shared_s = self.share()
        self._layer_rates = layer_rates
        self._is_on_cpu = is_on_cpu
        """On a GPU work has only been launched when it was timed."""
        self._meter = ReadMeter(layer_rates, now_s=clock())
        self.recomputed_layer_tokens = 0
        """Tokens, each in one layer, that were computed because layers after them are loaded."""
        self.made_s = 0.0
        """Seconds in which layers were made, from states or from tokens."""
        if compute is None:
            return
        self._stake = Stake(
            rates.compute_cost(compute),
            token_count,
            step_tokens=max(1.0, rates.step_tokens.value),
            # Of encoded states no pace is ever known.
            blind_share=STAKE_SHARE if state_format.codec is not None else BLIND_SHARE,
            least_wait_s=least_wait_s,
        )
        layout = state_format.layout
        history_bytes = token_count // layout.chunk_tokens * layout.chunk_bytes()
        self._pace = ReadPace(
            memory_bytes=history_bytes / PACE_SHARE,
            evidence_s=self._stake.evidence_s,
            now_s=shared_s,
        )

    @classmethod
    def of_options(
        cls,
        state_format: StateFormat,
        token_count: int,
        options: RestoreOptions,
        *,
        rates: Rates,
        is_on_cpu: bool,
    ) -> Self:
        """The limit of one restoration of a restorer."""
        return cls(
            state_format,
            token_count,
            compute=options.compute,
            rates=rates,
            least_wait_s=options.least_wait_s,
            layer_rates=options.layer_rates,
            is_on_cpu=is_on_cpu,
            clock=options.clock,
        )

    @property
    def wait_s_max(self) -> float:
        """Longest sleep before the next look."""
        if self._stake is None:
            return math.inf
        return self._stake.look_s

    def begin_look(self, source: SpanReader, *, was_waiting: bool) -> None:
        """The restoration looks what has arrived; ``was_waiting`` since it looked last."""
        if self._stake is None and self._layer_rates is None:
            return
        shared_s = self.share()
        arrived_bytes, is_reading = sum(source.read_bytes()), source.is_reading
        if self._stake is not None:
            if was_waiting:
                self._stake.spend(shared_s - self._looked_s)
            self._pace.observe(shared_s, arrived_bytes, is_reading=is_reading)
        self._looked_s = shared_s
        self._meter.observe(self._clock(), arrived_bytes, is_reading=is_reading)

    def end_look(self) -> None:
        """It has taken what it could."""
        self._charge()

    def end_recompute(self, duration_s: float, *, layer_tokens: int) -> None:
        """So many tokens, each in one layer, were computed from the tokens."""
        self.recomputed_layer_tokens += layer_tokens
        self.made_s += duration_s
        if self._layer_rates is not None and self._is_on_cpu:
            self._layer_rates.recomputed(duration_s, layer_tokens=layer_tokens)

    def end_take(self, layer: int, duration_s: float, *, layer_tokens: int) -> None:
        """So many tokens of a layer were projected, or copied and rotated."""
        self.made_s += duration_s
        if self._layer_rates is not None and self._is_on_cpu:
            source = SOURCE_OF[self._format.layout.layers[layer].kind]
            self._layer_rates.taken(source, duration_s, layer_tokens=layer_tokens)

    def end_step(self, first: int, stop: int, duration_s: float, *, step_tokens: int) -> None:
        """A step with ``step_tokens`` in all computed tokens ``first`` to ``stop - 1`` of it."""
        if self._compute is None:
            return
        expected_s = self._compute.compute_s(first, stop, stop - first)
        expected_s += self._compute.token_s * (step_tokens - (stop - first))
        self._rates.slowness.add(duration_s / expected_s)

    def gain(self, first: int, stop: int) -> None:
        """Tokens ``first`` to ``stop - 1`` were loaded."""
        self._charge()
        if self._stake is not None:
            self._stake.gain(first, stop)

    def opening(self, position: int) -> Verdict:
        """What to do while there is no span: the next one would begin at ``position``.

        A reader that was too slow is not waited for again before it has brought more.
        """
        self._charge()
        if self._stake is None:
            return Verdict.WAIT
        layout = self._format.layout
        load_s = None
        if self._format.codec is None:
            load_s = self._pace.remaining_s(layout.chunk_bytes())
        return self._stake.opening(position, position + layout.chunk_tokens, load_s=load_s)

    def settle(self, compute: ComputeCost | None, first_token: int, *, token_count: int) -> None:
        """What is lost from here on is computed at this cost, and nothing else with it."""
        self._charge()
        if self._stake is not None and compute is not None:
            cost = self._rates.compute_cost(compute)
            self._stake.settle(cost, first_token, token_count)

    def judge(self, span: Span, position: int, stop: int) -> Verdict:
        """What to do about tokens ``position`` to ``stop - 1``: their span has not come whole."""
        self._charge()
        if self._stake is None:
            return Verdict.WAIT
        return self._stake.verdict(position, stop, load_s=self._remaining_s(span))

    def affords(self, span: Span, position: int, *, share: float) -> bool:
        """Whether that share of computing a span from ``position`` on may be lost."""
        self._charge()
        if self._stake is None:
            return True
        stop = span.stop_token
        return share * self._stake.compute_s(position, stop) <= self._stake.left_s

    def _charge(self) -> None:
        """Whatever a restoration does within a look is no computing: it spends the stake."""
        shared_s = self.share()
        if self._stake is not None:
            self._stake.spend(shared_s - self._looked_s)
        self._looked_s = shared_s

    def _remaining_s(self, span: Span) -> float | None:
        if self._format.codec is not None:
            # How many bytes an encoded chunk has is known when it is there.
            return None
        missing = span.payload_bytes - sum(span.read_bytes())
        return self._pace.remaining_s(max(0, missing))
