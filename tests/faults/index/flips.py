"""Random bytes of the index's file, changed one at a time; each time a store starts from it.

They lie anywhere, in LMDB's meta pages, in what pages say of themselves, and in its lists of free
pages, a quarter each: much of that is looked at by writes only.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kvstored.store.index.index import DATA_FILE
from tests.faults.index.lab import IndexLab, Outcome, Stop

MISSING_MAX = 1
"""Chunks that one byte may cost without a rebuild: it lies in one record."""
HARMLESS = {"harmless", "rebuilt", "records dropped", "read-only until a restart"}


class Violation(Exception):  # noqa: N818 - a finding, not an error of the program
    """A promise was broken; the message says how to see it again."""


@dataclass(slots=True)
class FlipReport:
    """What became of all flips, by kind of stop and verdict."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    missing_chunks: int = 0
    """Misses without a rebuild: their records were damaged."""

    def as_values(self) -> dict[str, object]:
        """What JSON can hold."""
        return {
            "seed": self.seed,
            "flips": sum(counts.total() for counts in self.counts.values()),
            "missing_chunks": self.missing_chunks,
            "verdicts": {stop: dict(counts) for stop, counts in self.counts.items()},
        }


@dataclass(frozen=True, slots=True)
class Flip:
    """One byte of a file and what it is xored with."""

    offset: int
    mask: int

    def apply(self, folder: Path) -> None:
        """Changes the file."""
        with (folder / DATA_FILE).open("r+b") as file:
            file.seek(self.offset)
            byte = file.read(1)[0]
            file.seek(self.offset)
            file.write(bytes([byte ^ self.mask]))


def flip_bytes(
    count: int,
    seed: int,
    stops: tuple[Stop, ...],
    on_outcome: Callable[[Stop, Flip, Outcome], None],
) -> FlipReport:
    """Changes ``count`` bytes, one for each start; the stops take turns.

    ``on_outcome`` hears of each before it is judged. Raises Violation at the first start
    that breaks a promise, and keeps the damaged index then.
    """
    chooser = random.Random(seed)
    report = FlipReport(seed, {stop.value: Counter() for stop in stops})
    with IndexLab(chooser) as lab:
        for number in range(count):
            stop = stops[number % len(stops)]
            span = chooser.choice(lab.spans(stop))
            flip = Flip(chooser.choice(span), chooser.randrange(1, 256))
            outcome = lab.start(stop, flip.apply)
            on_outcome(stop, flip, outcome)
            report.counts[stop.value][outcome.verdict] += 1
            if not outcome.was_rebuilt:
                report.missing_chunks += len(outcome.missing)
            if outcome.verdict not in HARMLESS or len(outcome.missing) > MISSING_MAX:
                kept = keep(lab, stop, flip)
                raise Violation(
                    f"{flip} after a {stop.value} stop with KVSTORED_SEED={seed}, flip {number}: "
                    f"{outcome.verdict}: {outcome}; the damaged index is kept in {kept}"
                )
    return report


def keep(lab: IndexLab, stop: Stop, flip: Flip) -> Path:
    """A copy of the damaged index that outlives the lab."""
    kept = lab.folder.with_name(f"{lab.folder.name}.kept")
    shutil.copytree(lab.templates[stop], kept)
    flip.apply(kept)
    return kept
