"""A history that is saved once for each use of it, so that no use reads what another has read."""

from collections.abc import Collection, Mapping, Sequence

import torch

from benchmarks.benchmark import BenchmarkError
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import Segment
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, StateFormat
from kvstored_client import RAW, Client
from kvstored_contract.limits import KEY_BYTES


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

    def abandon_step(self) -> None:
        """Passed on."""
        for sink in self._sinks:
            sink.abandon_step()

    def end_request(self, request_id: int) -> None:
        """Passed on."""
        for sink in self._sinks:
            sink.end_request(request_id)


class SavedHistory:
    """Tokens, and for each use of them the layers that it stores. One thread only.

    Without ``schedules`` every use stores all layers as KV. Each has states of its own: the
    daemon brings chunks into DRAM that are read twice.
    """

    def __init__(
        self,
        model: Model,
        tokens: Sequence[int],
        schedules: Mapping[str, LayerSchedule] | None = None,
        *,
        chunk_tokens: int = CHUNK_TOKENS,
        codec: str = RAW,
    ) -> None:
        self.tokens = tokens
        self._model = model
        self._schedules = schedules
        self._chunk_tokens = chunk_tokens
        self._codec = codec

    @property
    def uses(self) -> Collection[str]:
        """The names that have a schedule."""
        return () if self._schedules is None else self._schedules.keys()

    @property
    def prompt(self) -> list[int]:
        """One more token than the history, because the last one is never restored."""
        return [*self.tokens, 0]

    def stores(self, use: str) -> bool:
        """Whether a use stores anything."""
        schedule = self._schedule(use)
        return schedule is None or schedule.count(Source.COMPUTE) < schedule.layer_count

    def format(self, use: str) -> StateFormat:
        """How the states of a use lie in the store."""
        states = StateFormat.of_model(
            self._model,
            f"benchmark {use}",
            schedule=self._schedule(use),
            chunk_tokens=self._chunk_tokens,
        )
        return states.encoded(self._codec)

    def ask_for_nothing(self, client: Client, uses: Collection[str] | None = None) -> None:
        """What a daemon and a session do at their first request for a layout, of each use."""
        for use in filter(self.stores, self.uses if uses is None else uses):
            client.match(self.format(use).layout, [bytes(KEY_BYTES)], lease_ms=1)

    def save(
        self, client: Client, uses: Collection[str] | None = None, *, new_tokens: int = 1
    ) -> tuple[int, ...]:
        """Prefills the history once and stores what each use needs; raises BenchmarkError.

        ``uses`` are those that have a schedule, unless they are named. Returns ``new_tokens``
        greedy tokens that follow the prompt, so that computing them is what restorations can be
        compared with.
        """
        storing = filter(self.stores, self.uses if uses is None else uses)
        device = self._model.device
        savers = [StateSaver(client, self.format(use), device=device) for use in storing]
        engine = Engine(
            self._model,
            cache_tokens=len(self.prompt) + new_tokens,
            token_budget=TOKEN_BUDGET,
            requests_max=1,
            sink=SinkOfAll(savers),
        )
        engine.add_request(self.prompt, new_tokens_max=new_tokens, stop_token_ids=())
        (completion,) = engine.run()
        for saver in savers:
            report = saver.finish()
            saver.close()
            self._check_count(report.saved_tokens, "saved")
        return completion.generated_ids

    def check(self, report: RestoreReport) -> None:
        """Raises BenchmarkError unless a restoration brought the whole history cold."""
        self._check_count(report.restored_tokens, "restored")
        check_cold(report)

    def _schedule(self, use: str) -> LayerSchedule | None:
        return None if self._schedules is None else self._schedules[use]

    def _check_count(self, token_count: int, done: str) -> None:
        if token_count < len(self.tokens):
            raise BenchmarkError(f"only {token_count} of {len(self.tokens)} tokens were {done}")


def check_cold(report: RestoreReport) -> None:
    """Raises BenchmarkError where a restoration found anything in DRAM."""
    if report.dram_bytes:
        raise BenchmarkError(f"{report.dram_bytes} bytes came from DRAM")
