"""What a connector costs the steps of engines that have nothing to restore.

All engines decode the same number of tokens, in turn by windows of some steps. Each window counts
by the median of its rounds, so that a disturbance meets one round of one window and not the result,
while what a connector does at the same place of every round, as saving a complete chunk, stays in.
What comes now here, now there, drops out as a disturbance does.

Processes that do the same differ by some hundredths for as long as they live. So two engines
without a connector are what the others are compared with, and all are restarted a few times.
All compute on the same core, because cores differ as well, and leave the others to what runs beside
computing, as vLLM has it where workers are processes of their own. All keep a prefix cache, as by
vLLM's default: with any connector it hashes blocks, whether they are kept or not. And the pool of
blocks is small enough to be in memory as a whole before anything is measured. Engines are stopped
while it is not their turn.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.interleave import Alternative, Measured, Rounds, interleave
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.vllm.lab import (
    DEVICE_BYTES,
    MIB,
    NO_PROMPT_TOKEN,
    STEP_TOKENS,
    Lab,
    random_prompt,
)
from benchmarks.vllm.shapes import HEADS_MODEL, VOCABULARY
from engine_adapters.vllm.settings.support import CAKE_SCHEDULER, HIDDEN_WORKER
from engine_adapters.vllm.testing.engine_arguments import BLOCK_TOKENS
from engine_adapters.vllm.testing.engine_process import EngineProcess
from engine_adapters.vllm.testing.tiny_model import make_model

PROMPT_TOKENS = 40
REQUESTS = 8
WINDOW_STEPS = 16
"""A chunk is complete in the middle of a window, so that saving it ends in the same one."""
WINDOWS = 8
DECODED_TOKENS = WINDOWS * WINDOW_STEPS + 8
"""More than are measured: the first requests begin before the last ones."""
POOL_BLOCKS = 64
"""Some more than all requests of a round have."""
PLAIN_ENGINES = ("plain", "control")
BARE_CONNECTOR = {
    "kv_connector": "BareConnector",
    "kv_connector_module_path": "benchmarks.vllm.bare_connector",
    "kv_role": "kv_both",
}
ENGINES: dict[str, dict[str, Any]] = {
    **{name: {"mode": None} for name in PLAIN_ENGINES},
    "bare": {"mode": None, "kv_transfer_config": BARE_CONNECTOR},
    "reading": {"mode": "cake", "scheduler_cls": CAKE_SCHEDULER, "options": {"saves": False}},
    "cake": {"mode": "cake", "scheduler_cls": CAKE_SCHEDULER},
    "hcache": {"mode": "hcache", "worker_cls": HIDDEN_WORKER},
}
SAVING_ENGINES = ("cake", "hcache")
FIGURES = ("step_overhead",)
Samples = dict[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScale:
    """How often the engines are started, and the rounds of each time."""

    starts: int
    rounds: Rounds


FULL = StepScale(starts=6, rounds=Rounds(count=5, count_min=5, time_limit_s=120.0))
QUICK = StepScale(starts=1, rounds=Rounds(count=5, count_min=5, time_limit_s=60.0))


def measure(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """A ratio of each start of the engines."""
    scale = QUICK if settings.quick else FULL
    generator = settings.random()
    starts = []
    for number in range(scale.starts):
        say(f"decoding beside a connector, start {number + 1} of {scale.starts}")
        with ExitStack() as stack:
            folder = stack.enter_context(scratch_folder(settings.folder, DEVICE_BYTES + 256 * MIB))
            lab = start_engines(folder, stack, generator)
            starts.append(decode_in_turn(lab, rounds=scale.rounds, generator=generator))
            check_saves(lab)
    return step_series(starts)


def start_engines(folder: Path, stack: ExitStack, generator: Random) -> Lab:
    """A daemon and one engine of each kind, in any order.

    Threads inherit the core of the one that starts them: none is bound before all have started.
    """
    lab = Lab(folder, stack)
    model = make_model(folder / "model", **HEADS_MODEL)
    for name in generator.sample(list(ENGINES), len(ENGINES)):
        lab.start(
            name,
            model,
            **ENGINES[name],
            max_model_len=POOL_BLOCKS * BLOCK_TOKENS // 2,
            num_gpu_blocks_override=POOL_BLOCKS,
            max_num_batched_tokens=STEP_TOKENS,
            dtype="float32",
            enable_prefix_caching=True,
        )
        with lab.awake(name) as engine:
            begin(engine, generator)
            engine.end_decoding()
            settle(name, engine)
            engine.ask("bind")
    return lab


def settle(name: str, engine: EngineProcess) -> None:
    """Waits until a connector has saved what it took: paused meanwhile it would run out of time."""
    if name in SAVING_ENGINES:
        engine.ask("settle")


def check_saves(lab: Lab) -> None:
    """Raises BenchmarkError where a connector was fast because it did not save everything."""
    for name in SAVING_ENGINES:
        with lab.awake(name) as engine:
            # A step reports what was counted.
            engine.generate([NO_PROMPT_TOKEN], max_tokens=2)
            saved, dropped = engine.counted("saved_tokens"), engine.counted("dropped_saves")
        if dropped or not saved:
            raise BenchmarkError(f"{name} has dropped {dropped:.0f} saves of what it decoded")


def begin(engine: EngineProcess, generator: Random) -> None:
    """Prompts that were never seen before."""
    prompts = [random_prompt(generator, PROMPT_TOKENS, VOCABULARY) for _ in range(REQUESTS)]
    engine.begin_decoding(*prompts, max_tokens=DECODED_TOKENS)


def decode_in_turn(lab: Lab, *, rounds: Rounds, generator: Random) -> Samples:
    """Seconds of each window of each of ENGINES, by ``NAME_WINDOW``, once for each round.

    What is decoded is saved: by copies of blocks, or of every layer's inputs.
    """

    def decode() -> Measured:
        windows: dict[str, float] = {}
        for name in ENGINES:
            with lab.awake(name) as engine:
                begin(engine, generator)
        for number in range(WINDOWS):
            for name in generator.sample(list(ENGINES), len(ENGINES)):
                with lab.awake(name) as engine:
                    windows[f"{name}_{number}"] = engine.decode_s(WINDOW_STEPS)
                    settle(name, engine)
        for name in ENGINES:
            with lab.awake(name) as engine:
                engine.end_decoding()
                settle(name, engine)
        return windows

    return interleave(
        [[Alternative(run=decode)]],
        rounds=rounds,
        generator=generator,
        announce=lambda _: None,
    )


def step_series(starts: Sequence[Samples]) -> tuple[Series, ...]:
    """What each connector costs, also where it saves nothing and where it does nothing.

    ``step_control`` is how far two engines without one are apart.
    """

    def ratios(key: str, name: str, *peers: str) -> Series:
        return Series(
            key=key,
            unit="ratio",
            samples=tuple(overhead(windows, name, peers) for windows in starts),
            is_figure=key in FIGURES,
        )

    return (
        ratios("step_overhead", "cake", *PLAIN_ENGINES),
        ratios("step_overhead_hcache", "hcache", *PLAIN_ENGINES),
        ratios("step_overhead_reading", "reading", *PLAIN_ENGINES),
        ratios("step_overhead_bare", "bare", *PLAIN_ENGINES),
        ratios("step_control", *PLAIN_ENGINES),
        *(
            Series(
                key=f"decode_{name}_s",
                unit="s",
                samples=tuple(typical_s(windows, name) for windows in starts),
            )
            for name in ENGINES
        ),
    )


def overhead(windows: Samples, name: str, peers: Sequence[str]) -> float:
    """One engine's steps over the mean of those of its peers."""
    return typical_s(windows, name) / fmean(typical_s(windows, peer) for peer in peers)


def typical_s(windows: Samples, name: str) -> float:
    """Seconds of a round of which no window was disturbed."""
    return sum(median(windows[f"{name}_{number}"]) for number in range(WINDOWS))
