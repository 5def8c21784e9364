"""One history that comes layer after layer, while new tokens are computed.

As AttentionStore does in section 3.2.1.
"""

import math

from engine_adapters.reading.layer_reader import LayerReader
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import (
    ComputeCost,
    LayerwiseLimit,
    LoadShare,
    Rates,
    ReadMeter,
)
from engine_adapters.restore.source import SOURCE_OF
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, OpenLayers, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.restore.awaited_chunks import Patience
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.layered_history import LayeredHistory, Reached
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.states.state_format import StateFormat


def layerwise_limit(
    state_format: StateFormat,
    token_count: int,
    compute: ComputeCost | None,
    rates: Rates,
    options: RestoreOptions,
    share: LoadShare,
) -> LayerwiseLimit | None:
    """That of a history of so many tokens, from now on; None where ``compute`` is not known.

    Its seconds are those of ``share``.
    """
    if compute is None:
        return None
    layout = state_format.layout
    return LayerwiseLimit(
        rates.compute_cost(compute),
        token_count,
        byte_count=token_count // layout.chunk_tokens * layout.chunk_bytes(),
        step_tokens=max(1.0, rates.step_tokens.value),
        has_pace=state_format.codec is None,
        least_wait_s=options.least_wait_s,
        answers=rates.answers,
        now_s=share(),
    )


class LayerwiseRestoration:
    """Each layer of all that is stored comes before the next one, into the cache as it arrives.

    Tokens after the history may be computed in the layers that it has already; beside other
    requests they begin when ``buffer_layers`` are there, so that no step holds a pass that rests
    again soon. It asks for no tokens of the history: whatever is lost, or costs more to wait for
    than ``limit`` says, is an ordinary prefill in the end. A lost chunk shortens the history, so
    that what was computed after it is worth nothing.
    """

    def __init__(
        self,
        reader: SpanReader,
        history: LayeredHistory,
        state_format: StateFormat,
        loader: LayerLoader,
        limit: LayerwiseLimit | None,
        options: RestoreOptions,
        *,
        share: LoadShare,
        buffer_layers: int = 1,
    ) -> None:
        """``limit`` counts the seconds of ``share``; without one only a time-out ends a wait."""
        self._reader = reader
        self._history = history
        self._layout = state_format.layout
        self._layers = LayerReader(reader, self._take, layer_count=self._layout.layer_count)
        self._loader = loader
        self._limit = limit
        self._share = share
        self._options = options
        self._buffer_layers = buffer_layers
        self._started_s = self._ended_s = options.clock()
        self._meter = ReadMeter(options.window_rates, now_s=self._started_s)
        self._patience = Patience(options.timeout_s, options.clock)
        self._final: Reached | None = None
        """What was reached when it was over: what the store answers after that comes too late."""

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``: nothing counts as there before all layers are."""
        reached, gate = self._reached(), self._layers.gate
        return RestorationState(
            position=reached.next_token if self._is_over else 0,
            is_over=self._is_over,
            is_loading=not self._is_over,
            is_waiting=self._patience.is_waiting,
            open_layers=(
                OpenLayers(
                    stop_token=reached.next_token,
                    dropped_count=reached.dropped_count,
                    layers=gate.open_layers,
                    buffer_layers=self._buffer_layers,
                )
                if gate is not None and reached.may_follow
                else None
            ),
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; never asks for tokens."""
        del token_budget
        self._look()
        slices_max = max(1, piece_tokens // self._layout.chunk_tokens) * self._layout.layer_count
        taken, gate = self._layers.take(slices_max), self._layers.gate
        if self._limit is not None:
            slices = 0 if gate is None else gate.piece_count * self._layout.layer_count
            self._limit.take(self._share(), taken / max(1, slices))
        if taken:
            self._patience.end_wait()
        elif not self._may_wait():
            self._layers.end()
            if self._limit is not None:
                self._limit.end()
        else:
            self._patience.begin_wait()
        if gate is None and self._may_wait():
            return 0
        if (gate is None or gate.is_done) and not self._is_over:
            self._patience.end_wait()
            self._loader.finish()
            self._ended_s = self._options.clock()
            self._final = self._reached()
        return 0

    def begin_step(self, token_count: int) -> int:
        """As ``Restoration``: while something is computed nothing is waited for.

        What it returns may lie inside a chunk, where a conversation ends.
        """
        del token_count
        self._patience.end_wait()
        return self._reached().first_unstored

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``, no longer than the store may still be waited for."""
        look_s = math.inf if self._limit is None else self._limit.look_s
        self._layers.wait(min(timeout_s, self._patience.remaining_s(), look_s))

    def close(self) -> RestoreReport:
        """As ``Restoration``."""
        self._reader.close()
        self._share.end()
        device_bytes, dram_bytes = self._reader.read_bytes()
        ended_s = self._ended_s if self._is_over else self._options.clock()
        return RestoreReport(
            restored_tokens=self._reached().restored_tokens if self._is_over else 0,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            waited_s=self._patience.waited_s,
            duration_s=ended_s - self._started_s,
            decode_s=self._reader.decode_s(),
            is_by_layers=True,
            first_unstored=self._reached().first_unstored,
        )

    @property
    def _is_over(self) -> bool:
        return self._final is not None

    def _reached(self) -> Reached:
        if self._final is not None:
            return self._final
        gate = self._layers.gate
        return self._history.reached(0 if gate is None else gate.kept)

    def _may_wait(self) -> bool:
        is_worth_it = self._limit is None or self._limit.is_waited_for
        return is_worth_it and self._patience.remaining_s() > 0

    def _look(self) -> None:
        arrived_bytes, is_reading = sum(self._reader.read_bytes()), self._reader.is_reading
        self._meter.observe(self._options.clock(), arrived_bytes, is_reading=is_reading)
        if self._limit is not None:
            self._limit.look(
                self._share(),
                arrived_bytes,
                was_waiting=self._patience.is_waiting,
                is_reading=is_reading,
            )

    def _take(self, span: Span, layer: int, chunks: range) -> None:
        rates, started_s = self._options.window_rates, self._options.clock()
        token_count = self._history.take(span, layer, chunks)
        if rates is not None and self._loader.is_on_cpu:
            duration_s = self._options.clock() - started_s
            source = SOURCE_OF[self._layout.layers[layer].kind]
            rates.taken(source, duration_s, layer_tokens=token_count)
