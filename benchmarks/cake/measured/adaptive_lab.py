"""Adaptive scheduling against first come, first served (Cake, section 5.8)."""

import random
from functools import partial

from benchmarks.cake.burst import spiked_burst
from benchmarks.cake.measured.crowd import TOKEN_BUDGET, Crowd, CrowdResult
from benchmarks.cake.measured.plots import plot_batches
from benchmarks.cake.measured.stage import Stage, forget
from benchmarks.cake.measured.step_timer import measured_cost
from benchmarks.interleave import Alternative, Measured
from benchmarks.kit.slow_machine import SlowDevice
from benchmarks.report import Series
from engine_adapters.restore import ComputeCost

FIGURES = ("adaptive_finish_time_gain_pct",)

ADAPTIVE, FIRST_COME = "adaptive", "first come"
USES = (ADAPTIVE, FIRST_COME)

LOAD_SHARE = 0.6
"""Loading alone takes this part of computing alone: what the paper's finish times (1.5 and
1.19 s, of an A100 that computes 16k tokens of the 7B model in some 2.6 s) imply."""

SHORTS_OVER_LONG = 0.23
"""Computing the short requests takes about this part of computing the long one on the paper's
A100, by the costs of ``benchmarks.cake.calibration``. It bounds what there is to gain, and which
length of the long one gives it depends on the model."""

SPIKES = (0.05, 0.12, 0.2, 0.28)
"""When short requests come, in parts of the time of computing the long one alone."""

BASE_REPEATS = 2


class AdaptiveLab:
    """One long restored request and 22 short ones."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stored = stored = stage.history(stage.scale.long_tokens)
        alone_s = stored.alone_s(TOKEN_BUDGET, repeats=BASE_REPEATS)
        self._bytes_per_s = stored.chunk_count * stored.chunk_bytes / (LOAD_SHARE * alone_s)
        generator = random.Random(f"{stage.settings.seed} burst")
        burst = spiked_burst(generator, [share * alone_s for share in SPIKES])
        vocabulary = stored.model.config.vocab_size
        prompts = [
            [generator.randrange(vocabulary) for _ in range(request.token_count)]
            for request in burst
        ]
        self._crowd = Crowd(stored, burst, prompts)
        shorts_s = min(self._crowd.shorts_s() for _ in range(BASE_REPEATS))
        self._shorts_over_long = shorts_s / alone_s
        self._runs: dict[str, CrowdResult] = {}
        self._generated: set[tuple[tuple[int, ...], ...]] = set()

    def measure(self) -> tuple[list[Series], bool]:
        """The series, and whether all tokens were equal; draws the last round."""
        stored = self._stored
        self._generated.add(self._crowd.run(None, is_adaptive=True).generated_ids)
        cost = measured_cost(
            stored.model, tokens=stored.token_count, token_budget=TOKEN_BUDGET, others_tokens=0
        )
        with self._stage.stored_slowly(stored, USES, self._bytes_per_s) as device:
            samples = self._stage.interleave(
                "adaptive",
                [Alternative(run=partial(self._run, device, use, cost)) for use in USES],
                rounds=self._stage.scale.long_rounds,
                prepare=lambda: forget(device, stored, USES),
            )
        self._draw()
        finishes = (samples[f"{_key(use)}_finish"] for use in USES)
        gains = tuple(
            100 * (1 - adaptive / first_come)
            for adaptive, first_come in zip(*finishes, strict=True)
        )
        figure = Series(
            key="adaptive_finish_time_gain_pct", unit="%", samples=gains, is_figure=True
        )
        times = [
            Series(key=key, unit="tokens" if key.endswith("_loaded") else "ms", samples=found)
            for key, found in samples.items()
        ]
        self._stage.announce(
            f"adaptive: computing the short requests takes {self._shorts_over_long:.2f} of "
            f"computing the long one (the paper's: {SHORTS_OVER_LONG})"
        )
        share = Series(
            key="adaptive_shorts_over_long", unit="ratio", samples=(self._shorts_over_long,)
        )
        return [figure, share, *times], len(self._generated) == 1

    def _run(self, device: SlowDevice, use: str, cost: ComputeCost) -> Measured:
        restorer = self._stored.cake_restorer(
            device.client,
            use,
            compute=cost,
            bytes_per_s=self._bytes_per_s,
            token_budget=TOKEN_BUDGET,
        )
        run = self._crowd.run(restorer, is_adaptive=use == ADAPTIVE)
        self._runs[use] = run
        self._generated.add(run.generated_ids)
        return {
            f"{_key(use)}_finish": 1000 * run.finish_s,
            f"{_key(use)}_waited": 1000 * run.waited_s,
            f"{_key(use)}_loaded": run.loaded_tokens,
        }

    def _draw(self) -> None:
        if self._stage.settings.plots is None:
            return
        plot_batches(
            self._stage.settings.plots / "cake_adaptive.png",
            {use: (run.started_s, run.steps) for use, run in self._runs.items()},
        )


def _key(use: str) -> str:
    return use.replace(" ", "_")


def measure(stage: Stage) -> tuple[list[Series], bool]:
    """The series of this part, and whether all tokens were equal."""
    return AdaptiveLab(stage).measure()
