"""What a benchmark is: a name, the figures that it promises, and how to run it."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.report import Series


class BenchmarkError(RuntimeError):
    """A benchmark cannot run, or measured something else than it claims; one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to run a benchmark.

    ``quick`` benchmarks end within 5 minutes on 2 cores. ``folder`` is where scratch
    folders are made; its file system is the one that is measured. ``seed`` decides
    every order and every payload. Progress goes to ``console``.
    """

    quick: bool
    folder: Path
    seed: int
    console: Console

    def random(self) -> random.Random:
        """A generator that starts from the seed."""
        return random.Random(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark. ``figures`` are stable keys that others may read."""

    name: str
    figures: tuple[str, ...]
    run: Callable[[Settings], tuple[Series, ...]]
