"""Computing and loading at once beside a process that comes and goes.

Every restoration begins with costs that were measured before, as in a process of its own. Once
with a core that torch leaves free, as in all other parts, and once on all cores, as the demo.
"""

import os
from functools import partial

import torch

from benchmarks.cake.measured.history import CakeHistory, Taken
from benchmarks.cake.measured.stage import Stage, forget
from benchmarks.cake.measured.step_timer import measured_cost
from benchmarks.interleave import Alternative, Measured, ratios
from benchmarks.kit.other_work import other_work
from benchmarks.kit.slow_machine import SlowDevice
from benchmarks.report import Series, Summary
from engine_adapters.restore import ComputeCost
from engine_adapters.runner.restore.restorer import Restorer

CAKE, LOAD = "cake", "load"
USES = (CAKE, LOAD)
TOKEN_BUDGET = 512
BASE_REPEATS = 3

CORE_FREE, ALL_CORES = "disturbed", "disturbed_all_cores"

FIGURES = ("disturbed_vs_better_alone_max", "disturbed_vs_oracle_median")


class DisturbedLab:
    """One history at the rate at which loading it takes as long as computing it. Used once.

    ``name`` begins the key of every series.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        self._stored: CakeHistory = stage.history(stage.scale.tokens)
        self._loaded: list[Taken] = []
        self._computed: list[Taken] = []
        self._generated: set[tuple[int, ...]] = set()

    def measure(self) -> tuple[list[Series], bool]:
        """The series, and whether all tokens were equal. Raises BenchmarkError."""
        stored, scale = self._stored, self._stage.scale
        alone_s = stored.alone_s(TOKEN_BUDGET, repeats=BASE_REPEATS)
        cost = measured_cost(
            stored.model, tokens=stored.token_count, token_budget=TOKEN_BUDGET, others_tokens=0
        )
        bytes_per_s = stored.chunk_count * stored.chunk_bytes / alone_s
        with (
            self._stage.stored_slowly(stored, USES, bytes_per_s) as device,
            other_work(self._stage.settings.seed),
        ):
            samples = self._stage.interleave(
                self._name,
                [
                    Alternative(run=partial(self._cake, device, cost, bytes_per_s)),
                    Alternative(run=partial(self._load, device)),
                    Alternative(run=self._compute),
                ],
                rounds=scale.disturbed_rounds,
                prepare=lambda: forget(device, stored, USES),
            )
        # Of the counted rounds only: the first one warms up.
        pairs = list(zip(self._loaded, self._computed, strict=True))
        samples[f"{self._name}_oracle"] = tuple(
            1000 * self._oracle_s(*pair) for pair in pairs[-len(samples[f"{self._name}_cake"]) :]
        )
        return disturbed_series(samples, self._name), len(self._generated) == 1

    def _cake(self, device: SlowDevice, cost: ComputeCost, bytes_per_s: float) -> Measured:
        restorer = self._stored.cake_restorer(
            device.client, CAKE, compute=cost, bytes_per_s=bytes_per_s, token_budget=TOKEN_BUDGET
        )
        taken = self._taken(restorer)
        return {
            f"{self._name}_cake": 1000 * taken.ttft_s,
            f"{self._name}_cake_waited": 1000 * taken.waited_s,
            f"{self._name}_cake_loaded": taken.completion.restore.restored_tokens,
        }

    def _load(self, device: SlowDevice) -> Measured:
        self._loaded.append(self._taken(self._stored.load_restorer(device.client, LOAD)))
        return {f"{self._name}_load": 1000 * self._loaded[-1].ttft_s}

    def _compute(self) -> Measured:
        self._computed.append(self._taken(None))
        return {f"{self._name}_compute": 1000 * self._computed[-1].ttft_s}

    def _taken(self, restorer: Restorer | None) -> Taken:
        taken = self._stored.take(restorer, token_budget=TOKEN_BUDGET)
        self._generated.add(taken.completion.generated_ids)
        return taken

    def _oracle_s(self, loaded: Taken, computed: Taken) -> float:
        """The best meeting point by what both sides took alone in one round."""
        load_s = loaded.completion.restore.duration_s
        return self._stored.oracle_s(computed, load_s=load_s, rest_s=loaded.ttft_s - load_s)


def disturbed_series(samples: dict[str, tuple[float, ...]], name: str) -> list[Series]:
    """Cake over the better side alone and over the oracle, of the same round each; then all."""
    alone = zip(samples[f"{name}_load"], samples[f"{name}_compute"], strict=True)
    over_better = ratios(samples[f"{name}_cake"], [min(pair) for pair in alone])
    over_oracle = ratios(samples[f"{name}_cake"], samples[f"{name}_oracle"])
    return [
        Series(
            key=f"{name}_vs_better_alone_max",
            unit="ratio",
            samples=over_better,
            summary=Summary.MOST,
            is_figure=name == CORE_FREE,
        ),
        Series(
            key=f"{name}_vs_oracle_median",
            unit="ratio",
            samples=over_oracle,
            is_figure=name == CORE_FREE,
        ),
        *(
            Series(key=key, unit="tokens" if key.endswith("_loaded") else "ms", samples=values)
            for key, values in samples.items()
        ),
    ]


def measure(stage: Stage) -> tuple[list[Series], bool]:
    """The series of this part, and whether all tokens were equal."""
    series, were_equal = DisturbedLab(stage, CORE_FREE).measure()
    threads = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        on_all_cores, were_equal_too = DisturbedLab(stage, ALL_CORES).measure()
    finally:
        torch.set_num_threads(threads)
    return series + on_all_cores, were_equal and were_equal_too
