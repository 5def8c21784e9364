"""Prompts of the same texts in ever different orders: mode ``pic`` against computing them.

The texts are stored once, by requests of their own. Each round puts them together in another
order, before a question that was never asked. The daemon is restarted before each link, so that
all states come from its device.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.interleave import Measured, Rounds, ratios
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.vllm.lab import DEVICE_BYTES, MIB, STEP_TOKENS, Lab, compared, random_prompt
from benchmarks.vllm.shapes import HEADS_MODEL, VOCABULARY
from engine_adapters.vllm.settings.support import CAKE_SCHEDULER, HIDDEN_WORKER
from engine_adapters.vllm.testing.tiny_model import make_model

FIGURES = ("pic_over_computed_ttft",)
METHODS = {"linked": "attnlink-16", "naive": "naive"}
"""Ways to link; the first one is the figure's."""
COMPUTED = "computed"
QUESTION_TOKENS = 32
ENTRY_REMAINDER = 12
"""Tokens of each text that are no whole chunk, so that no entry begins where a block does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PicScale:
    """How many texts of how many whole chunks' tokens a prompt has."""

    entries: int
    entry_tokens: int
    rounds: Rounds


FULL = PicScale(
    entries=8, entry_tokens=512, rounds=Rounds(count=9, count_min=9, time_limit_s=300.0)
)
QUICK = PicScale(
    entries=4, entry_tokens=512, rounds=Rounds(count=5, count_min=5, time_limit_s=60.0)
)


class PicBench:
    """Both engines, and the prompt of a round."""

    def __init__(self, settings: Settings, scale: PicScale, lab: Lab, model: Any) -> None:
        self._generator = settings.random()
        self._lab = lab
        limits: dict[str, Any] = {
            "max_model_len": 8192,
            "max_num_batched_tokens": STEP_TOKENS,
        }
        lab.start(COMPUTED, model, mode=None, **limits)
        lab.start(
            "pic",
            model,
            mode="pic",
            worker_cls=HIDDEN_WORKER,
            scheduler_cls=CAKE_SCHEDULER,
            **limits,
        )
        self._entries = [
            random_prompt(self._generator, scale.entry_tokens + ENTRY_REMAINDER, VOCABULARY)
            for _ in range(scale.entries)
        ]
        self._prompt: list[int] = []
        self._places: list[list[int]] = []

    def store(self) -> None:
        """Has each text computed on its own, and one prompt by each engine."""
        for entry in self._entries:
            self._lab.store("pic", entry)
        self.next_round()
        for way in (COMPUTED, *METHODS):
            self.take(way)

    def next_round(self) -> None:
        """The texts in another order, and another question."""
        self._generator.shuffle(self._entries)
        ends = list(accumulate(map(len, self._entries), initial=0))
        self._places = [list(pair) for pair in pairwise(ends)]
        question = random_prompt(self._generator, QUESTION_TOKENS, VOCABULARY)
        self._prompt = [*(token for entry in self._entries for token in entry), *question]

    def take(self, way: str) -> Measured:
        """TTFT of the round's prompt; raises BenchmarkError when it was not linked."""
        if way == COMPUTED:
            return {way: self._lab.take(COMPUTED, self._prompt).ttft_s}
        # Nothing lies in the daemon's DRAM.
        self._lab.limit(["pic"], None)
        engine = self._lab.engine("pic")
        before = engine.counted("jumped_tokens")
        extra = {"kv_transfer_params": {"entries": self._places, "link": METHODS[way]}}
        (answer,) = engine.generate(self._prompt, max_tokens=1, extra=extra)
        jumped = engine.counted("jumped_tokens") - before
        if jumped < len(self._prompt) / 2:
            raise BenchmarkError(f"{way}: {jumped:.0f} tokens only kept the states of their text")
        return {way: answer["ttft_s"], f"{way}_kept_tokens": jumped}


def measure(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """The comparison; raises BenchmarkError."""
    scale = QUICK if settings.quick else FULL
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, DEVICE_BYTES + 512 * MIB))
        say("engines that compute and link")
        model = make_model(folder / "model", **HEADS_MODEL)
        bench = PicBench(settings, scale, Lab(folder, stack), model)
        bench.store()
        say("prompts in new orders")
        samples = compared(
            bench.take,
            (COMPUTED, *METHODS),
            rounds=scale.rounds,
            generator=settings.random(),
            prepare=bench.next_round,
        )
        return series(samples)


def series(samples: dict[str, tuple[float, ...]]) -> tuple[Series, ...]:
    """The figure, the same by the other method, then every sample."""
    linked, naive = METHODS
    return (
        Series(
            key=FIGURES[0],
            unit="ratio",
            samples=ratios(samples[linked], samples[COMPUTED]),
            is_figure=True,
        ),
        Series(
            key="pic_naive_over_computed_ttft",
            unit="ratio",
            samples=ratios(samples[naive], samples[COMPUTED]),
        ),
        *(
            Series(key=f"pic_{key}", unit="count", samples=values)
            if key.endswith("_tokens")
            else Series(key=f"pic_{key}_s", unit="s", samples=values)
            for key, values in samples.items()
        ),
    )
