"""A history that is saved once for each use of it, so that no use reads what another has read."""

from collections.abc import Collection, Mapping, Sequence

import torch

from benchmarks.benchmark import BenchmarkError
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.model import Model
from engine_adapters.runner.restore_report import RestoreReport
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import Segment
from kvstored_client import Client


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


class SavedHistory:
    """Tokens, and for each use of them the layers that it stores. One thread only.

    Each use has states of its own: the daemon brings chunks into DRAM that are read twice.
    """

    def __init__(
        self, model: Model, tokens: Sequence[int], schedules: Mapping[str, LayerSchedule]
    ) -> None:
        self.tokens = tokens
        self._model = model
        self._schedules = schedules

    @property
    def uses(self) -> Collection[str]:
        """Their names."""
        return self._schedules.keys()

    def stores(self, use: str) -> bool:
        """Whether a use stores anything."""
        schedule = self._schedules[use]
        return schedule.count(Source.COMPUTE) < schedule.layer_count

    def format(self, use: str) -> StateFormat:
        """How the states of a use lie in the store."""
        return StateFormat.of_model(self._model, f"benchmark {use}", schedule=self._schedules[use])

    def save(self, client: Client, *, new_tokens: int) -> tuple[int, ...]:
        """Prefills the history once and stores what each use needs; raises BenchmarkError.

        Returns ``new_tokens`` greedy tokens behind it and a token 0, so that computing them is
        what restorations can be compared with.
        """
        savers = [
            StateSaver(client, self.format(use)) for use in self._schedules if self.stores(use)
        ]
        engine = Engine(
            self._model,
            cache_tokens=len(self.tokens) + 1 + new_tokens,
            token_budget=TOKEN_BUDGET,
            requests_max=1,
            sink=SinkOfAll(savers),
        )
        engine.add_request([*self.tokens, 0], new_tokens_max=new_tokens, stop_token_ids=())
        (completion,) = engine.run()
        for saver in savers:
            report = saver.finish()
            saver.close()
            if report.saved_tokens < len(self.tokens):
                raise BenchmarkError(
                    f"only {report.saved_tokens} of {len(self.tokens)} tokens were saved"
                )
        return completion.generated_ids

    def check(self, report: RestoreReport) -> None:
        """Raises BenchmarkError unless a restoration brought the whole history cold."""
        if report.restored_tokens < len(self.tokens):
            raise BenchmarkError(f"only {report.restored_tokens} tokens were restored")
        if report.dram_bytes:
            raise BenchmarkError(f"{report.dram_bytes} bytes came from DRAM")
