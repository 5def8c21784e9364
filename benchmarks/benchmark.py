"""What a benchmark is: a name, the figures that it promises, and how to run it."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks.report import Series


class BenchmarkError(RuntimeError):
    """A benchmark cannot run, or measured something else than it claims; one sentence."""

    exit_status = 1


class UntellingError(BenchmarkError):
    """A benchmark ran, and what it measured cannot tell right from wrong; one sentence."""

    exit_status = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to run a benchmark.

    ``quick`` benchmarks end within 5 minutes on 2 cores. ``folder`` is where scratch
    folders are made; its file system is the one that is measured. ``seed`` decides
    every order and every payload. Progress goes to ``console``. ``parts`` are those that
    were chosen; none are all. ``platforms`` and ``models`` are what the simulation of
    restorations was asked to show besides the paper's. Pictures go to ``plots``, if anywhere.
    ``peer_python`` is the interpreter of an environment that has the peer of ``peers``. ``traces``
    are files of requests that ``tiering`` replays. ``device`` is what ``gpu`` measures; None is the
    GPU. ``keep`` writes down what was measured so far, for a run that is cut.
    """

    quick: bool
    folder: Path
    seed: int
    console: Console
    parts: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    plots: Path | None = None
    peer_python: Path | None = None
    traces: tuple[Path, ...] = ()
    device: str | None = None
    keep: Callable[[Sequence[Series]], None] = lambda _: None

    def random(self) -> random.Random:
        """A generator that starts from the seed."""
        return random.Random(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark. ``figures`` are stable keys that others may read.

    ``parts`` names the parts that can be run alone, with the figures of each; together
    they have all figures. ``quick`` runs leave out ``slow_parts`` unless they are named. One that
    ``may_leave_out`` figures says which parts it left out.
    """

    name: str
    figures: tuple[str, ...]
    run: Callable[[Settings], tuple[Series, ...]]
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slow_parts: frozenset[str] = frozenset()
    may_leave_out: bool = False

    def promised(self, parts: Sequence[str], *, quick: bool = False) -> tuple[str, ...]:
        """The figures of these parts, of all that run when none is named; raises BenchmarkError."""
        if not parts and quick and self.slow_parts:
            parts = [part for part in self.parts if part not in self.slow_parts]
        if not parts:
            return self.figures
        for part in parts:
            if part not in self.parts:
                known = ", ".join(self.parts) or "it has none"
                raise BenchmarkError(f"there is no part {part!r}; its parts: {known}")
        return tuple(dict.fromkeys(figure for part in parts for figure in self.parts[part]))
