"""Mode ``prefix`` against vLLM's own tiered offloading to files, on the same disk.

One process of each stores prompts and ends. Another, whose memory has none of them, restores
every prompt once: a round takes a new one, so that nothing is warm. The daemon is restarted
between both processes, and what the page cache has of the files is given up before each round.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.interleave import Measured, Rounds, ratios
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.vllm.lab import DEVICE_BYTES, MIB, STEP_TOKENS, Lab, compared, random_prompt
from benchmarks.vllm.shapes import HEADS_MODEL, VOCABULARY
from engine_adapters.vllm.testing.engine_arguments import CHUNK_TOKENS, offloading_config
from engine_adapters.vllm.testing.tiny_model import make_model

FIGURES = ("prefix_vs_native_fs_ttft",)
HOST_TIER_BYTES = 512 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeScale:
    """Length of the prompts, one of which each round takes."""

    prompt_tokens: int
    rounds: Rounds


FULL = NativeScale(
    prompt_tokens=4 * 1024 + 4, rounds=Rounds(count=9, count_min=9, time_limit_s=200.0)
)
QUICK = NativeScale(
    prompt_tokens=2 * 1024 + 4, rounds=Rounds(count=9, count_min=9, time_limit_s=60.0)
)


def drop_cached(folder: Path) -> None:
    """Gives up what the page cache has of all files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class NativeBench:
    """Both kinds of engine, and the prompts that they have not restored yet."""

    def __init__(
        self, settings: Settings, scale: NativeScale, folder: Path, stack: ExitStack
    ) -> None:
        generator = settings.random()
        self._lab = Lab(folder, stack)
        self._files = folder / "files"
        self._model = make_model(folder / "model", **HEADS_MODEL)
        self._limits: dict[str, Any] = {
            "max_model_len": 8192,
            "max_num_batched_tokens": STEP_TOKENS,
        }
        # One for the round that warms up, and one that every engine computes first.
        self._prompts = [
            random_prompt(generator, scale.prompt_tokens, VOCABULARY)
            for _ in range(scale.rounds.count + 1)
        ]
        self._first = random_prompt(generator, scale.prompt_tokens, VOCABULARY)
        self._prompt: list[int] = []
        self._tokens: set[tuple[int, ...]] = set()

    def store(self) -> None:
        """Has a process of each kind store all prompts and ends it."""
        chunks = sum(len(prompt) // CHUNK_TOKENS for prompt in self._prompts)
        self._start_both()
        for prompt in self._prompts:
            self._lab.store("prefix", prompt)
            self._lab.take("native_fs", prompt)
        # It moves chunks to its tiers in steps only, so that there must be some.
        while sum(1 for _ in self._files.rglob("*.bin")) < chunks:
            self._lab.take("native_fs", self._first[:1])
        for name in ("prefix", "native_fs"):
            self._lab.end(name)

    def open_readers(self) -> None:
        """Processes that have none of the prompts in their memory, and a daemon as empty."""
        self._start_both()
        for name in ("prefix", "native_fs"):
            self._lab.take(name, self._first)
        self._lab.limit(["prefix"], None)

    def next_round(self) -> None:
        """Another prompt, which nothing but the disk has."""
        self._prompt = self._prompts.pop()
        self._tokens.clear()
        drop_cached(self._files)

    def take(self, name: str) -> Measured:
        """TTFT of the round's prompt by one of them; raises BenchmarkError when it was computed."""
        taken = self._lab.take(name, self._prompt)
        if taken.cached_tokens < len(self._prompt) // CHUNK_TOKENS * CHUNK_TOKENS:
            raise BenchmarkError(f"{name} restored {taken.cached_tokens} tokens only")
        self._tokens.add(taken.tokens)
        if len(self._tokens) > 1:
            raise BenchmarkError("the same prompt gave different tokens")
        return {f"native_{name}": taken.ttft_s}

    def _start_both(self) -> None:
        self._lab.start("prefix", self._model, mode="prefix", **self._limits)
        files = {"type": "fs", "root_dir": str(self._files)}
        self._lab.start(
            "native_fs",
            self._model,
            mode=None,
            kv_transfer_config=offloading_config(files, host_tier_bytes=HOST_TIER_BYTES),
            **self._limits,
        )


def measure(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """The comparison; raises BenchmarkError when the tokens of both differ."""
    scale = QUICK if settings.quick else FULL
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, 2 * DEVICE_BYTES))
        say("engines that store for a second process")
        bench = NativeBench(settings, scale, folder, stack)
        bench.store()
        bench.open_readers()
        say("restoring from files and from the daemon")
        samples = compared(
            bench.take,
            ("prefix", "native_fs"),
            rounds=scale.rounds,
            generator=settings.random(),
            prepare=bench.next_round,
        )
        return series(samples)


def series(samples: dict[str, tuple[float, ...]]) -> tuple[Series, ...]:
    """The figure, then every sample."""
    figure = Series(
        key=FIGURES[0],
        unit="ratio",
        samples=ratios(samples["native_prefix"], samples["native_native_fs"]),
        is_figure=True,
    )
    return (
        figure,
        *(Series(key=f"{key}_s", unit="s", samples=values) for key, values in samples.items()),
    )
