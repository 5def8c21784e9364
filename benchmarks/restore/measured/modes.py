"""The modes as a restoration carries them out in one setting."""

import time
from collections.abc import Mapping, Sequence

from benchmarks.benchmark import BenchmarkError
from benchmarks.kit.restored_history import restored
from benchmarks.kit.saved_history import SavedHistory
from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.restore import LayerCosts, LayerRates, LayerSchedule, Mode, Source
from engine_adapters.runner.engine.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.restore_options import SPAN_TOKENS, RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.states.mode_choice import MEASURED_MODES
from engine_adapters.runner.states.state_format import token_bytes
from engine_adapters.runner.turn import span_bytes_of
from kvstored_client import Client, Order, StateKind

READ_SOURCES = (Source.HIDDEN, Source.KV)
NEW_TOKENS = 8
READ_TIMEOUT_S = 120.0


class ModeRunner:
    """Saves a history once for each use of it, and restores it. One thread only.

    A use is a mode or a source that is only read.
    """

    def __init__(
        self,
        model: Model,
        history: Sequence[int],
        schedules: Mapping[Mode, LayerSchedule],
        costs: LayerCosts,
    ) -> None:
        """``schedules`` say what is stored; modes that balance ``costs`` begin with these."""
        self._model = model
        self._history = history
        layers = model.config.layer_count
        self._saved = SavedHistory(
            model,
            history,
            {
                **{str(mode): schedule for mode, schedule in schedules.items()},
                **{_reading(source): LayerSchedule.of((source, layers)) for source in READ_SOURCES},
            },
        )
        self._cache = model.make_cache(len(history) + NEW_TOKENS + 1)
        self._rates = {
            mode: LayerRates(
                costs,
                len(history),
                hidden_bytes=token_bytes(model, StateKind.HIDDEN),
                kv_bytes=token_bytes(model, StateKind.KV),
            )
            for mode in schedules
            if mode in MEASURED_MODES
        }

    def save(self, client: Client) -> tuple[int, ...]:
        """Prefills the history once and stores what each use needs; the tokens behind it."""
        return self._saved.save(client, new_tokens=NEW_TOKENS)

    def restore(self, client: Client, mode: Mode) -> RestoreReport:
        """Restores the whole history; raises BenchmarkError unless all came cold."""
        if not self._saved.stores(mode):
            return self._recompute()
        restorer = self._restorer(client, mode)
        # One more token, because the last one is never restored.
        report = restored(restorer, [*self._history, 0], cache=self._cache)
        self._saved.check(report)
        return report

    def read(self, client: Client, source: Source, *, token_count: int | None = None) -> float:
        """Reads all layers from one source and makes nothing of it; seconds of one layer.

        With ``token_count`` only so many tokens are read, and the time of all is derived from them.
        """
        state_format = self._saved.format(_reading(source))
        layout = state_format.layout
        started_s = time.perf_counter()
        tokens = self._history[:token_count]
        keys = client.prefix_keys(layout, tokens)
        reader = SpanReader(
            client,
            state_format,
            known(pieces_of(keys, chunk_tokens=layout.chunk_tokens)),
            ReadOptions(order=Order.LAYER_FIRST, span_chunks=SPAN_TOKENS // layout.chunk_tokens),
            remaining_s=lambda: READ_TIMEOUT_S,
        )
        try:
            while (span := reader.first()) is not None:
                for layer in range(layout.layer_count):
                    reader.advance()
                    if span.wait_layer(layer, READ_TIMEOUT_S) < span.chunk_count:
                        raise BenchmarkError("a chunk was lost while it was read")
                reader.give_back(span)
        finally:
            reader.close()
        share = len(tokens) / len(self._history)
        return (time.perf_counter() - started_s) / layout.layer_count / share

    def continuation(self, client: Client, mode: Mode) -> tuple[int, ...]:
        """Greedy tokens behind the history of a mode that stores anything, and a token 0."""
        restorer = self._restorer(client, mode)
        engine = Engine(
            self._model,
            cache_tokens=len(self._history) + NEW_TOKENS + 1,
            token_budget=TOKEN_BUDGET,
            requests_max=1,
            restorer=restorer,
        )
        engine.add_request([*self._history, 0], new_tokens_max=NEW_TOKENS, stop_token_ids=())
        (completion,) = engine.run()
        restorer.close()
        if completion.restore.restored_tokens < len(self._history):
            raise BenchmarkError(f"mode {mode} restored only a part of the history")
        return completion.generated_ids

    def ask_for_nothing(self, client: Client) -> None:
        """As ``SavedHistory``."""
        self._saved.ask_for_nothing(client)

    def stores(self, mode: Mode) -> bool:
        """Whether a mode stores anything."""
        return self._saved.stores(mode)

    def _restorer(self, client: Client, mode: Mode) -> Restorer:
        """As the runner makes it: with spans of as many tokens for every layout."""
        state_format = self._saved.format(mode)
        return Restorer(
            client,
            state_format,
            self._model,
            RestoreOptions(
                span_bytes=span_bytes_of(state_format),
                timeout_s=READ_TIMEOUT_S,
                layer_rates=self._rates.get(mode),
            ),
        )

    def _recompute(self) -> RestoreReport:
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
        return RestoreReport(
            duration_s=time.perf_counter() - started_s,
            recomputed_layer_tokens=len(self._history) * self._model.config.layer_count,
        )


def _reading(source: Source) -> str:
    return f"read {source}"
