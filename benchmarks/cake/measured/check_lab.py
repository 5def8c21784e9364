"""What looking at the board costs in every step (Cake, section 5.9)."""

import random
import time
from dataclasses import dataclass

from benchmarks.cake.measured.stage import Stage
from benchmarks.cake.measured.step_timer import measured_cost
from benchmarks.kit.slow_machine import SlowDevice
from benchmarks.report import Series
from engine_adapters.restore import ComputeCost
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.restore.restorer import Restorer

FIGURES = ("check_overhead_pct", "check_whole_step_pct")
"""What looking costs without the forward pass, and by how much whole steps took longer."""
USE = "check"

SLOWNESS = 3.0
"""A chunk takes so many times as long as computing everything: hardly any arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """One step: all of it, and what was not the forward pass."""

    token_count: int
    step_s: float
    around_s: float


class CheckLab:
    """Two engines prefill the same prompt, step by step in turn; one looks at the board."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stored = stage.history(stage.scale.tokens)
        self._generator = random.Random(f"{stage.settings.seed} check")

    def measure(self) -> tuple[list[Series], bool]:
        """The series; no tokens are generated, so none differ."""
        stored, scale = self._stored, self._stage.scale
        cost = measured_cost(
            stored.model,
            tokens=stored.token_count,
            token_budget=scale.check_step_tokens,
            others_tokens=0,
        )
        alone_s = cost.compute_s(0, stored.token_count, scale.check_step_tokens)
        pairs: list[tuple[_Timed, _Timed]] = []
        bytes_per_s = stored.chunk_bytes / (SLOWNESS * alone_s)
        # One transfer at once: what is in flight has to end before the next prefill.
        with self._stage.stored_slowly(stored, [USE], bytes_per_s, depth=1) as device:
            for number in range(1 + scale.check_passes):
                self._stage.announce(f"check: prefill {number} of {scale.check_passes}")
                found = self._prefill(device, cost, alone_s)
                pairs += found if number else []
        return _series(pairs), True

    def _prefill(
        self, device: SlowDevice, cost: ComputeCost, alone_s: float
    ) -> list[tuple[_Timed, _Timed]]:
        stored, step_tokens = self._stored, self._stage.scale.check_step_tokens
        stored.model.begin()
        # It expects a chunk in the time of computing everything, so that one is tried.
        restorer = stored.cake_restorer(
            device.client,
            USE,
            compute=cost,
            bytes_per_s=stored.chunk_bytes / alone_s,
            token_budget=step_tokens,
        )
        looking, plain = (self._engine(each) for each in (restorer, None))
        pairs = []
        while not (looking.is_idle or plain.is_idle):
            if self._generator.random() < 1 / 2:
                with_check, without = self._step(looking), self._step(plain)
            else:
                without, with_check = self._step(plain), self._step(looking)
            # Should a chunk arrive after all, there is less to compute at the end.
            if with_check.token_count == without.token_count:
                pairs.append((with_check, without))
        restorer.close()
        return pairs

    def _engine(self, restorer: Restorer | None) -> Engine:
        prompt = self._stored.prompt
        engine = Engine(
            self._stored.model,
            cache_tokens=len(prompt) + 1,
            token_budget=self._stage.scale.check_step_tokens,
            requests_max=1,
            restorer=restorer,
        )
        engine.add_request(prompt, new_tokens_max=1, stop_token_ids=())
        return engine

    def _step(self, engine: Engine) -> _Timed:
        """The next step that computes something."""
        steps = self._stored.model.steps
        before = len(steps)
        while len(steps) == before:
            started_s = time.perf_counter()
            engine.step()
            step_s = time.perf_counter() - started_s
        return _Timed(
            token_count=steps[-1].token_count,
            step_s=step_s,
            around_s=step_s - steps[-1].duration_s,
        )


def _series(pairs: list[tuple[_Timed, _Timed]]) -> list[Series]:
    """Both as a part of a whole step.

    ``check_overhead_pct`` leaves out how long the forward pass itself took: that is the same
    computation in both, but whole steps differ by several percent from one to the next, far
    more than what is asked for. ``check_whole_step_pct`` leaves nothing out, so that what the
    check did to the forward pass itself would show there, if at all.
    """
    checks = tuple(100 * (ours.around_s - plain.around_s) / plain.step_s for ours, plain in pairs)
    steps = tuple(100 * (ours.step_s / plain.step_s - 1) for ours, plain in pairs)
    milliseconds = tuple(1000 * plain.step_s for _, plain in pairs)
    return [
        Series(key="check_overhead_pct", unit="%", samples=checks, is_figure=True),
        Series(key="check_whole_step_pct", unit="%", samples=steps, is_figure=True),
        Series(key="check_step", unit="ms", samples=milliseconds),
    ]


def measure(stage: Stage) -> tuple[list[Series], bool]:
    """The series of this part, and whether all tokens were equal."""
    return CheckLab(stage).measure()
