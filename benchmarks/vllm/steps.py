"""What a connector costs the steps of engines that have nothing to restore.

All engines decode the same number of tokens, in turn by windows of some steps. Each window counts
by the median of its rounds, so that a disturbance meets one round of one window and not the result,
while what a connector does at the same place of every round, as saving a complete chunk, stays in.
What comes now here, now there, drops out as a disturbance does.
"""

from random import Random
from statistics import median

from benchmarks.interleave import Alternative, Measured, Rounds, interleave
from benchmarks.report import Series
from benchmarks.vllm.lab import Lab, random_prompt
from benchmarks.vllm.shapes import VOCABULARY

PROMPT_TOKENS = 40
REQUESTS = 8
WINDOW_STEPS = 16
"""A chunk is complete in the middle of a window, so that saving it ends in the same one."""
WINDOWS = 8
DECODED_TOKENS = WINDOWS * WINDOW_STEPS + 8
"""More than are measured: the first requests begin before the last ones."""
GROUP_ROUNDS = 7
"""Rounds of one sample of the published ratio."""

STEPPED_ENGINES = ("plain", "control", "cake", "hcache")
Samples = dict[str, tuple[float, ...]]


def decode_in_turn(lab: Lab, *, rounds: Rounds, generator: Random) -> Samples:
    """Seconds of each window of each of STEPPED_ENGINES, by ``NAME_WINDOW``, once for each round.

    What is decoded is saved: by copies of blocks, or of every layer's inputs.
    """

    def decode() -> Measured:
        windows: dict[str, float] = {}
        for name in STEPPED_ENGINES:
            prompts = [random_prompt(generator, PROMPT_TOKENS, VOCABULARY) for _ in range(REQUESTS)]
            lab.engine(name).begin_decoding(*prompts, max_tokens=DECODED_TOKENS)
        for number in range(WINDOWS):
            for name in generator.sample(STEPPED_ENGINES, len(STEPPED_ENGINES)):
                windows[f"{name}_{number}"] = lab.engine(name).decode_s(WINDOW_STEPS)
        for name in STEPPED_ENGINES:
            lab.engine(name).end_decoding()
        return windows

    return interleave(
        [[Alternative(run=decode)]],
        rounds=rounds,
        generator=generator,
        announce=lambda _: None,
    )


def step_series(windows: Samples) -> tuple[Series, ...]:
    """What each connector costs, and what an engine without one does: the noise of the others."""
    figure = Series(
        key="step_overhead",
        unit="ratio",
        samples=overheads(windows, "cake", "plain"),
        is_figure=True,
    )
    others = (
        Series(key=f"step_overhead_{name}", unit="ratio", samples=overheads(windows, name, "plain"))
        for name in ("control", "hcache")
    )
    rounds = (
        Series(key=f"decode_{name}_s", unit="s", samples=_rounds_s(windows, name))
        for name in STEPPED_ENGINES
    )
    return (figure, *others, *rounds)


def overheads(windows: Samples, name: str, plain: str) -> tuple[float, ...]:
    """One engine's steps over those of another: a ratio for each GROUP_ROUNDS rounds.

    Rounds that are left over belong to the last ratio.
    """
    count = len(windows[f"{plain}_0"])
    starts = range(0, max(count - GROUP_ROUNDS, 0) + 1, GROUP_ROUNDS)
    groups = [slice(start, start + GROUP_ROUNDS) for start in starts]
    groups[-1] = slice(groups[-1].start, count)
    return tuple(
        _typical_s(windows, name, group) / _typical_s(windows, plain, group) for group in groups
    )


def _rounds_s(windows: Samples, name: str) -> tuple[float, ...]:
    return tuple(map(sum, zip(*_of(windows, name), strict=True)))


def _typical_s(windows: Samples, name: str, rounds: slice) -> float:
    return sum(median(samples[rounds]) for samples in _of(windows, name))


def _of(windows: Samples, name: str) -> list[tuple[float, ...]]:
    return [windows[f"{name}_{number}"] for number in range(WINDOWS)]
