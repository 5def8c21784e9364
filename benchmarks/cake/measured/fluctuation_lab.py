"""Cake while the share of the machine and the rate of the device change (section 5.7)."""

from dataclasses import dataclass
from functools import partial

from benchmarks.cake.measured.fluctuating_budget import FluctuatingBudget
from benchmarks.cake.measured.fluctuating_daemon import device_rate
from benchmarks.cake.measured.history import Taken
from benchmarks.cake.measured.plots import plot_pointers
from benchmarks.cake.measured.stage import Stage, forget
from benchmarks.cake.measured.step_timer import last_step_s, measured_cost
from benchmarks.cake.traces import oracle_s
from benchmarks.interleave import Alternative, Measured
from benchmarks.kit.slow_machine import SlowDevice
from benchmarks.report import Series
from engine_adapters.runner.restore.pointer_sample import PointerSample
from engine_adapters.runner.restore.restorer import Restorer

FIGURES = ("fluctuation_vs_oracle",)
STEP_TOKENS = 512
USE = "fluctuation"
BASE_REPEATS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    """A restoration with all that its planner decided."""

    taken: Taken
    samples: tuple[PointerSample, ...]


class FluctuationLab:
    """Both sides have half of what they could on average, and take equally long alone."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stored = stored = stage.history(stage.scale.long_tokens)
        whole_s = stored.alone_s(STEP_TOKENS, repeats=BASE_REPEATS)
        self._bytes_per_s_max = stored.chunk_count * stored.chunk_bytes / whole_s
        self._cost = measured_cost(
            stored.model,
            tokens=stored.token_count,
            token_budget=STEP_TOKENS // 2,
            others_tokens=STEP_TOKENS // 2,
        )
        self._last_step_s = last_step_s(
            stored.model, tokens=stored.token_count, others_tokens=STEP_TOKENS // 2
        )
        self._samples: list[PointerSample] = []
        self._round = 0
        self._restored: list[_Traced] = []
        self._computed: list[Taken] = []

    def measure(self) -> tuple[list[Series], bool]:
        """The series, and whether all tokens were equal; draws the last round."""
        with self._stage.stored_slowly(
            self._stored, [USE], self._bytes_per_s_max, is_fluctuating=True
        ) as device:
            self._interleave(device)
        oracles_s = [
            self._oracle_s(traced.taken, computed)
            for traced, computed in zip(self._restored, self._computed, strict=True)
        ]
        # The first round is not counted.
        times_s = {
            "cake": [traced.taken.ttft_s for traced in self._restored[1:]],
            "compute": [computed.ttft_s for computed in self._computed[1:]],
            "oracle": oracles_s[1:],
        }
        self._draw()
        return self._series(times_s), self._were_equal()

    def _interleave(self, device: SlowDevice) -> None:
        stored = self._stored
        restorer = stored.cake_restorer(
            device.client,
            USE,
            compute=self._cost,
            bytes_per_s=self._bytes_per_s_max / 2,
            token_budget=STEP_TOKENS // 2,
            observer=self._samples.append,
        )

        def prepare() -> None:
            self._round += 1
            forget(device, stored, [USE])

        self._stage.interleave(
            "fluctuation",
            [Alternative(run=partial(self._cake, restorer)), Alternative(run=self._alone)],
            rounds=self._stage.scale.long_rounds,
            prepare=prepare,
        )

    def _cake(self, restorer: Restorer) -> Measured:
        self._samples.clear()
        taken = self._stored.take(restorer, token_budget=STEP_TOKENS, step=self._budget().step)
        self._restored.append(_Traced(taken=taken, samples=tuple(self._samples)))
        return {"cake_s": taken.ttft_s}

    def _alone(self) -> Measured:
        taken = self._stored.take(None, token_budget=STEP_TOKENS, step=self._budget().step)
        self._computed.append(taken)
        return {"compute_s": taken.ttft_s}

    def _budget(self) -> FluctuatingBudget:
        """The same draws for everything in a round."""
        seed = f"{self._stage.settings.seed} {self._round}"
        return FluctuatingBudget(self._stored.model, seed, step_tokens=STEP_TOKENS)

    def _oracle_s(self, restored: Taken, computed: Taken) -> float:
        """What the device could give from the request on, beside what the same steps computed.

        The device is taken at its nominal rate. The step of the last token is that of this token
        alone beside others: in a real one there may be more of the history.
        """
        rate = device_rate(self._bytes_per_s_max)
        # Both clocks of Python's are the same one on Linux.
        start_s = restored.started_s
        loaded_at_s = [
            rate.reached_s(start_s, chunk * self._stored.chunk_bytes) - start_s
            for chunk in range(self._stored.chunk_count + 1)
        ]
        return oracle_s(
            computed.trace,
            loaded_at_s,
            chunk_tokens=self._stored.chunk_tokens,
            alone_s=computed.ttft_s,
            rest_s=self._last_step_s,
        )

    def _series(self, times_s: dict[str, list[float]]) -> list[Series]:
        ratios = tuple(
            ours / oracle for ours, oracle in zip(times_s["cake"], times_s["oracle"], strict=True)
        )
        return [
            Series(key="fluctuation_vs_oracle", unit="ratio", samples=ratios, is_figure=True),
            *(
                Series(
                    key=f"fluctuation_{name}",
                    unit="ms",
                    samples=tuple(1000 * each for each in seconds),
                )
                for name, seconds in times_s.items()
            ),
        ]

    def _were_equal(self) -> bool:
        generated = {traced.taken.completion.generated_ids for traced in self._restored}
        return generated == {computed.completion.generated_ids for computed in self._computed}

    def _draw(self) -> None:
        if self._stage.settings.plots is None:
            return
        last = self._restored[-1]
        plot_pointers(
            self._stage.settings.plots / "cake_fluctuation.png",
            last.taken,
            last.samples,
            device_rate(self._bytes_per_s_max),
        )


def measure(stage: Stage) -> tuple[list[Series], bool]:
    """The series of this part, and whether all tokens were equal."""
    return FluctuationLab(stage).measure()
