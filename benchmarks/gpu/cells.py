"""Restores one length at one rate in every way, in rounds."""

import random
import statistics
from dataclasses import dataclass, field, replace

from benchmarks.benchmark import BenchmarkError
from benchmarks.cake.traces import ComputeTrace, oracle_s
from benchmarks.gpu.costs import DeviceCosts
from benchmarks.gpu.found import WAYS, Cell, are_equal, cell_seconds
from benchmarks.gpu.histories import Histories
from benchmarks.gpu.plain_read import read_s
from benchmarks.gpu.scale import DeviceRate
from benchmarks.gpu.traced_model import TracedModel
from engine_adapters.device_copies.open_copies import open_copies
from engine_adapters.restore import (
    ComputeCost,
    CostProfile,
    LayerCosts,
    LayerRates,
    LoadCost,
    Mode,
    Sample,
    Source,
)
from engine_adapters.restore.testing.oracle import elapsed_s
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, StateFormat
from engine_adapters.runner.turn import span_bytes_of
from kvstored_client import Client

NEW_TOKENS = 4
TIMEOUT_S = 60.0
READ_REPEATS = 3
OVERHEAD = 1.5
"""Times as long as its costs say that a round may take."""
ROUND_BASE_S = 0.3
READ_TOKENS = (1024, 4096)
"""Lengths whose reads tell how fast the store is, as modes plan by it."""


@dataclass(slots=True)
class _Rounds:
    """What the rounds of one cell found."""

    ttft_s: dict[Mode, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    restored_s: dict[Mode, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    oracle_s: list[float] = field(default_factory=list)
    equal: int = 0
    compared: int = 0
    cake_waited_s: list[float] = field(default_factory=list)
    cake_loaded_tokens: list[float] = field(default_factory=list)


class CellLab:
    """One model at one rate, through one client. One thread only."""

    def __init__(
        self,
        name: str,
        model: TracedModel,
        histories: Histories,
        client: Client,
        rate: DeviceRate,
        costs: DeviceCosts,
        *,
        elsewhere_max: float,
        step_tokens: int,
    ) -> None:
        self._name = name
        self._model = model
        self._histories = histories
        self._client = client
        self._rate = rate
        self._elsewhere_max = elsewhere_max
        self._step_tokens = step_tokens
        self._layers = model.config.layer_count
        self.profile = costs.with_reads(self._reads(costs))
        """With the store as it was read just now."""
        # Else the first restorer of each cell would register the arena with CUDA.
        self._copies = open_copies(model.device)
        self._copies.pin(client.arena_memory)

    def needed_s(self, token_count: int, rounds: int) -> float:
        """Seconds that a cell takes about, with a round to warm up: each length has its kernels."""
        costs = self.profile.costs(token_count)
        round_s = OVERHEAD * cell_seconds(costs, self._layers) + ROUND_BASE_S
        read_s = self._layers * (costs.io_hidden_s + costs.io_kv_s)
        return (1 + rounds) * round_s + READ_REPEATS * read_s

    def close(self) -> None:
        """Nothing is measured any more."""
        self._copies.pin(None)

    def warm_up(self, token_count: int, generator: random.Random) -> None:
        """A round that does not count: kernels are chosen and sessions connected."""
        self._rounds(_Rounds(), token_count, 1, generator)

    def measure(self, token_count: int, *, rounds: int, generator: random.Random) -> Cell:
        """All ways in an order of their own in each round; raises BenchmarkError."""
        costs, found = self._costs(token_count), _Rounds()
        self._rounds(found, token_count, rounds, generator)
        return Cell(
            model=self._name,
            rate=self._rate.name,
            token_count=token_count,
            layer_count=self._layers,
            costs=costs,
            ttft_s={way: tuple(values) for way, values in found.ttft_s.items()},
            restored_s={way: tuple(values) for way, values in found.restored_s.items()},
            oracle_s=tuple(found.oracle_s),
            equal=found.equal,
            compared=found.compared,
            cake_waited_s=tuple(found.cake_waited_s),
            cake_loaded_tokens=tuple(found.cake_loaded_tokens),
        )

    def _rounds(
        self, found: _Rounds, token_count: int, rounds: int, generator: random.Random
    ) -> None:
        restorers = {
            way: self._restorer(way, self.profile, token_count)
            for way in WAYS
            if self._histories.stored(way, self._rate.name) is not None
        }
        try:
            for _ in range(rounds):
                self._round(found, restorers, token_count, generator)
        finally:
            for restorer in restorers.values():
                restorer.close()

    def _round(
        self,
        found: _Rounds,
        restorers: dict[Mode, Restorer],
        token_count: int,
        generator: random.Random,
    ) -> None:
        trace: ComputeTrace | None = None
        completions: dict[Mode, Completion] = {}
        for way in generator.sample(WAYS, len(WAYS)):
            completion, steps = self._taken(restorers.get(way), token_count)
            completions[way] = completion
            if way is Mode.RECOMPUTE:
                trace = steps
            elif way in restorers:
                self._check(way, completion.restore, token_count)
            found.ttft_s[way].append(completion.ttft_s)
            found.restored_s[way].append(completion.restore.duration_s or completion.ttft_s)
        computed, loaded = completions[Mode.RECOMPUTE], completions[Mode.KV]
        assert trace is not None
        found.cake_waited_s.append(completions[Mode.CAKE].restore.waited_s)
        found.cake_loaded_tokens.append(completions[Mode.CAKE].restore.restored_tokens)
        found.oracle_s.append(_oracle_s(trace, computed, loaded, token_count // CHUNK_TOKENS))
        margins, dtype = self._model.margins, self._model.config.dtype
        for way in WAYS[1:]:
            ours, wanted = completions[way].generated_ids, computed.generated_ids
            is_equal = are_equal(ours, wanted, margins, dtype)
            found.compared += is_equal is not None
            found.equal += is_equal is True

    def _taken(
        self, restorer: Restorer | None, token_count: int
    ) -> tuple[Completion, ComputeTrace | None]:
        """One request to its last token; only where nothing is restored its steps are traced."""
        model = self._model
        prompt = [*self._histories.tokens[:token_count], 0]
        engine = Engine(
            model,
            cache_tokens=len(prompt) + NEW_TOKENS,
            token_budget=self._step_tokens,
            requests_max=1,
            restorer=restorer,
        )
        model.finish()
        if restorer is None:
            model.begin()
        engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        (completion,) = engine.run()
        return completion, model.end() if restorer is None else None

    def _restorer(self, way: Mode, profile: CostProfile, token_count: int) -> Restorer:
        schedule = self._histories.stored(way, self._rate.name)
        assert schedule is not None
        state_format = self._histories.format(schedule)
        span_bytes = span_bytes_of(state_format)
        options = RestoreOptions(span_bytes=span_bytes, timeout_s=TIMEOUT_S)
        if way in {Mode.HCACHE, Mode.AUTO}:
            options = RestoreOptions(
                span_bytes=span_bytes,
                timeout_s=TIMEOUT_S,
                step_tokens=self._step_tokens,
                layer_rates=LayerRates(
                    profile.costs(token_count),
                    token_count,
                    hidden_bytes=profile.hidden_bytes,
                    kv_bytes=profile.kv_bytes,
                ),
            )
        elif way is Mode.CAKE:
            options = RestoreOptions(
                way=Way.BOTH_ENDS,
                span_bytes=span_bytes,
                timeout_s=TIMEOUT_S,
                step_tokens=self._step_tokens,
                compute=ComputeCost.of_profile(profile, self._layers),
                load=LoadCost.of_profile(
                    profile, Source.KV, layer_count=self._layers, chunk_tokens=CHUNK_TOKENS
                ),
            )
        return Restorer(self._client, state_format, self._model, options)

    def _costs(self, token_count: int) -> LayerCosts:
        """Those of the profile, with what plain reads of this very length take."""
        hidden_s, kv_s = (
            statistics.median(
                self._read(self._histories.format(self._histories.single(source)), token_count)
                for _ in range(READ_REPEATS)
            )
            for source in (Source.HIDDEN, Source.KV)
        )
        return replace(
            self.profile.costs(token_count),
            io_hidden_s=hidden_s / self._layers,
            io_kv_s=kv_s / self._layers,
        )

    def _reads(self, costs: DeviceCosts) -> list[Sample]:
        """Of one layer, from each source, once the first read has connected and registered."""
        samples = []
        longest = len(self._histories.tokens)
        for source in (Source.KV, Source.HIDDEN):
            state_format = self._histories.format(self._histories.single(source))
            self._read(state_format, CHUNK_TOKENS)
            for token_count in sorted({min(longest, count) for count in READ_TOKENS}):
                seconds = self._read(state_format, token_count) / self._layers
                samples.append(Sample(token_count * costs.token_bytes(source), seconds))
        return samples

    def _read(self, state_format: StateFormat, token_count: int) -> float:
        return read_s(self._client, state_format, self._histories.tokens[:token_count])

    def _check(self, way: Mode, report: RestoreReport, token_count: int) -> None:
        """Raises BenchmarkError where not all came, or from elsewhere than the rate says."""
        where = f"{self._name} at {self._rate.name}, {token_count} tokens, mode {way}"
        if way is not Mode.CAKE and report.restored_tokens < token_count:
            raise BenchmarkError(f"{where}: only {report.restored_tokens} tokens were restored")
        elsewhere = report.device_bytes if self._rate.is_dram else report.dram_bytes
        if elsewhere > self._elsewhere_max * (report.device_bytes + report.dram_bytes):
            wrong = "the device" if self._rate.is_dram else "DRAM"
            raise BenchmarkError(f"{where}: {elsewhere} bytes came from {wrong}")


def _oracle_s(
    trace: ComputeTrace, computed: Completion, loaded: Completion, chunk_count: int
) -> float:
    """The best meeting point of the round's own computing and loading."""
    load_s = loaded.restore.duration_s
    return oracle_s(
        trace,
        elapsed_s([load_s / chunk_count] * chunk_count),
        chunk_tokens=CHUNK_TOKENS,
        alone_s=computed.ttft_s,
        rest_s=loaded.ttft_s - load_s,
    )
