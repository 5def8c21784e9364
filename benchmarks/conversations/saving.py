"""Saving beside computing, and after each round (figure 20)."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.conversations.costs import Costs
from benchmarks.conversations.scale import Scale
from benchmarks.interleave import Alternative, Measured, interleave
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

MIB = 1024 * 1024
DECODED = 20
"""Steps of decoding after each prompt, as in the paper."""
JOBS = 2
"""That follow each other: what is left to be saved of one overlaps with the next."""
FIGURE = "save_overlap_gain_pct"


class LateSink(NullSink):
    """Keeps all states of a round, and hands them to a saver when that has ended (figure 8a)."""

    def __init__(self, saver: StateSaver) -> None:
        self._saver = saver
        self._begun: tuple[int, Sequence[int], int] | None = None
        self._steps: list[tuple[Sequence[Segment], list[tuple[int, Tensor, Tensor, Tensor]]]] = []

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Kept."""
        self._begun = request_id, token_ids, stored_tokens

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Kept."""
        self._steps.append((segments, []))

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Kept: the model never overwrites them."""
        self._steps[-1][1].append((layer, hidden, keys, values))

    def end_request(self, request_id: int) -> None:
        """Saves the round, and waits until it is saved."""
        assert self._begun is not None
        self._saver.begin_request(*self._begun)
        for segments, taken in self._steps:
            self._saver.begin_step(segments)
            for states in taken:
                self._saver.take(*states)
            self._saver.end_step()
        self._saver.end_request(request_id)
        self._saver.finish()
        self._steps = []


class SavingLab:
    """Rounds of prompt and answer whose states go to a device at its rate."""

    def __init__(self, client: Client, model: Model, seed: int) -> None:
        self._client = client
        self._model = model
        self._format = StateFormat.of_model(model, "saving")
        self._dice = random.Random(seed)

    def seconds(self, prompt_tokens: int, *, is_late: bool) -> float:
        """All jobs, until the states of the last one are saved; raises BenchmarkError."""
        saver = StateSaver(self._client, self._format)
        engine = Engine(
            self._model,
            cache_tokens=prompt_tokens + DECODED,
            requests_max=1,
            sink=LateSink(saver) if is_late else saver,
        )
        engine.warm_up()
        for _ in range(JOBS):
            vocabulary = self._model.config.vocab_size
            prompt = [self._dice.randrange(vocabulary) for _ in range(prompt_tokens)]
            engine.add_request(prompt, new_tokens_max=DECODED, stop_token_ids=())
        started_s = time.perf_counter()
        completions = engine.run()
        report = saver.finish()
        duration_s = time.perf_counter() - started_s
        saver.close()
        for completion in completions:
            if completion.error is not None:
                raise BenchmarkError(f"a job failed: {completion.error}")
        if report.dropped_tokens:
            raise BenchmarkError(f"{report.dropped_tokens} tokens were not saved")
        return duration_s

    def alternatives(self, prompt_tokens: int) -> tuple[Alternative, ...]:
        """Both ways with prompts of this length."""

        def of(name: str, *, is_late: bool) -> Alternative:
            def run() -> Measured:
                key = f"figure_20_{prompt_tokens}_{name}"
                return {key: self.seconds(prompt_tokens, is_late=is_late)}

            return Alternative(run=run)

        return of("late", is_late=True), of("overlapped", is_late=False)


def measure(settings: Settings, scale: Scale, model: Model, folder: Path) -> tuple[Series, ...]:
    """Both ways of saving, round by round; raises BenchmarkError."""
    costs = Costs(model)
    longest = max(scale.saved_prompts)
    bytes_per_s = costs.bytes_per_s(longest, 100, load_share=1.0)
    job_bytes = longest * costs.token_bytes
    with scratch_folder(folder, 0) as place, settings.console.status("saving") as status:
        options = DaemonOptions(
            folder=place,
            device_bytes=costs.slabs_bytes(16 * job_bytes),
            dram_bytes=costs.slabs_bytes(4 * JOBS * job_bytes),
            arena_bytes_max=512 * MIB,
            device_count=1,
            slab_bytes=costs.slab_bytes,
            device_bytes_per_s_max=int(bytes_per_s),
        )
        with served(options, name="conversations") as (_, client):
            lab = SavingLab(client, model, settings.seed)
            samples = interleave(
                [lab.alternatives(count) for count in scale.saved_prompts],
                rounds=scale.rounds,
                generator=settings.random(),
                announce=lambda text: status.update(f"saving: {text}"),
            )
    gains = tuple(
        100 * (1 - overlapped / late)
        for count in scale.saved_prompts
        for late, overlapped in zip(
            samples[f"figure_20_{count}_late"],
            samples[f"figure_20_{count}_overlapped"],
            strict=True,
        )
    )
    return (
        Series(key=FIGURE, unit="%", samples=gains, is_figure=True),
        *(Series(key=key, unit="s", samples=values) for key, values in samples.items()),
    )
