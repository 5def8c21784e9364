"""The modes as a restoration carries them out in one setting."""

import time
from collections.abc import Mapping, Sequence

import torch

from benchmarks.benchmark import BenchmarkError
from engine_adapters.restore import LayerSchedule, Mode, Source
from engine_adapters.runner.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.model import Model
from engine_adapters.runner.read_ahead import ReadAhead
from engine_adapters.runner.restorer import SPAN_TOKENS, StateRestorer
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import NullSink, Segment
from kvstored_client import Client, Order

READ_SOURCES = (Source.HIDDEN, Source.KV)
NEW_TOKENS = 8
READ_TIMEOUT_S = 120.0


class SinkOfAll:
    """Shows every state to several sinks, so that one prefill saves all layouts."""

    def __init__(self, sinks: Sequence[StateSaver]) -> None:
        self._sinks = sinks

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Passed on, as all the others."""
        for sink in self._sinks:
            sink.begin_request(request_id, token_ids, stored_tokens)

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Passed on; waits for the saves of the step before, so that none is dropped."""
        for sink in self._sinks:
            sink.finish()
            sink.begin_step(segments)

    def take(
        self, layer: int, hidden: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Passed on."""
        for sink in self._sinks:
            sink.take(layer, hidden, keys, values)

    def end_step(self) -> None:
        """Passed on."""
        for sink in self._sinks:
            sink.end_step()

    def end_request(self, request_id: int) -> None:
        """Passed on."""
        for sink in self._sinks:
            sink.end_request(request_id)


class ModeRunner:
    """Saves a history once for each use of it, and restores it. One thread only.

    A use is a mode or a source that is only read. Each has states of its own: the daemon
    brings chunks into DRAM that are read twice.
    """

    def __init__(
        self, model: Model, history: Sequence[int], schedules: Mapping[Mode, LayerSchedule]
    ) -> None:
        self._model = model
        self._history = history
        layers = model.config.layer_count
        self._schedules: dict[str, LayerSchedule] = {
            **{str(mode): schedule for mode, schedule in schedules.items()},
            **{_reading(source): LayerSchedule.of((source, layers)) for source in READ_SOURCES},
        }
        self._cache = model.make_cache(len(history) + NEW_TOKENS + 1)

    def save(self, client: Client) -> None:
        """Prefills the history once and stores what each use needs."""
        savers = [
            StateSaver(client, self._format(use)) for use in self._schedules if self._stores(use)
        ]
        engine = Engine(
            self._model,
            cache_tokens=len(self._history) + 1,
            token_budget=TOKEN_BUDGET,
            requests_max=1,
            sink=SinkOfAll(savers),
        )
        engine.add_request(self._history, new_tokens_max=1)
        engine.run()
        for saver in savers:
            report = saver.finish()
            saver.close()
            if report.saved_tokens < len(self._history):
                raise BenchmarkError(
                    f"only {report.saved_tokens} of {len(self._history)} tokens were saved"
                )

    def restore(self, client: Client, mode: Mode) -> float:
        """Restores the whole history; seconds. Raises BenchmarkError unless all came cold."""
        if not self._stores(mode):
            return self._recompute()
        restorer = StateRestorer(client, self._format(mode), self._model)
        # One more token, because the last one is never restored.
        report = restorer.restore([*self._history, 0], cache=self._cache, first_slot=0)
        if report.restored_tokens < len(self._history):
            raise BenchmarkError(f"only {report.restored_tokens} tokens were restored")
        if report.dram_bytes:
            raise BenchmarkError(f"{report.dram_bytes} bytes came from DRAM")
        return report.duration_s

    def read(self, client: Client, source: Source) -> float:
        """Reads all layers from one source and makes nothing of it; seconds of one layer."""
        state_format = self._format(_reading(source))
        layout = state_format.layout
        started_s = time.perf_counter()
        ahead = ReadAhead(
            client,
            state_format,
            client.prefix_keys(layout, self._history),
            order=Order.LAYER_FIRST,
            span_chunks=SPAN_TOKENS // layout.chunk_tokens,
            remaining_s=lambda: READ_TIMEOUT_S,
        )
        try:
            while (span := ahead.first()) is not None:
                for layer in range(layout.layer_count):
                    ahead.advance()
                    if span.wait_layer(layer, READ_TIMEOUT_S) < span.chunk_count:
                        raise BenchmarkError("a chunk was lost while it was read")
                ahead.pop()
        finally:
            ahead.close()
        return (time.perf_counter() - started_s) / layout.layer_count

    def continuation(self, client: Client, mode: Mode) -> tuple[int, ...]:
        """Greedy tokens behind the history."""
        restorer = None
        if self._stores(mode):
            restorer = StateRestorer(client, self._format(mode), self._model)
        engine = Engine(
            self._model,
            cache_tokens=len(self._history) + NEW_TOKENS + 1,
            token_budget=TOKEN_BUDGET,
            requests_max=1,
            restorer=restorer,
        )
        engine.add_request([*self._history, 0], new_tokens_max=NEW_TOKENS, stop_token_ids=())
        (completion,) = engine.run()
        if restorer is not None:
            restorer.close()
            if completion.restore.restored_tokens < len(self._history):
                raise BenchmarkError(f"mode {mode} restored only a part of the history")
        return completion.generated_ids

    def _format(self, use: str) -> StateFormat:
        return StateFormat.of_model(self._model, f"benchmark {use}", schedule=self._schedules[use])

    def _stores(self, use: str) -> bool:
        schedule = self._schedules[use]
        return schedule.count(Source.COMPUTE) < schedule.layer_count

    def _recompute(self) -> float:
        started_s = time.perf_counter()
        for first in range(0, len(self._history), TOKEN_BUDGET):
            part = self._history[first : first + TOKEN_BUDGET]
            segment = Segment(
                request_id=-1,
                first_row=0,
                token_count=len(part),
                first_position=first,
                first_slot=0,
            )
            self._model.forward(part, [segment], cache=self._cache, sink=NullSink(), logit_rows=())
        return time.perf_counter() - started_s


def _reading(source: Source) -> str:
    return f"read {source}"
