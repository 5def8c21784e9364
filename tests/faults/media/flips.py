"""Bit flips, many: in everything that lies on media, one flip at a time.

A flip is *detected* when the code that reads the bytes refuses them, and nothing else. It is
a violation when other bytes or another record is accepted, and when anything but the
documented error is raised, which in the daemon would end a thread. Flips between the end of
a slice and the next page change nothing that is served; they are counted apart.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from tests.faults.media.flips_checked import CheckedTarget
from tests.faults.media.flips_index import IndexFileTarget
from tests.faults.media.flips_parsed import (
    ExtentHeaderTarget,
    ExtentPayloadTarget,
    IndexRecordTarget,
    SlabHeaderTarget,
    SnapshotTarget,
    SuperblockTarget,
)
from tests.faults.media.flips_served import ServedTarget
from tests.faults.media.flips_target import Specimen, Target, Verdict, Violation, specimen

PERCENT: dict[Callable[[Specimen], Target], int] = {
    ExtentPayloadTarget: 33,
    ExtentHeaderTarget: 15,
    SlabHeaderTarget: 7,
    SuperblockTarget: 7,
    IndexRecordTarget: 27,
    SnapshotTarget: 5,
    IndexFileTarget: 3,
    ServedTarget: 2,
    CheckedTarget: 1,
}
"""How many of a hundred flips each target gets; the last three go through whole parts."""


@dataclass(slots=True)
class FlipReport:
    """Flips by target and verdict, for people and for a file of results."""

    seed: int
    counts: dict[str, Counter[Verdict]] = field(default_factory=dict)

    @property
    def flip_count(self) -> int:
        """All flips."""
        return sum(counts.total() for counts in self.counts.values())

    def as_values(self) -> dict[str, object]:
        """What JSON can hold."""
        return {
            "seed": self.seed,
            "flips": self.flip_count,
            "undetected": 0,
            "targets": {
                name: {verdict.value: count for verdict, count in counts.items()}
                for name, counts in self.counts.items()
            },
        }


def flip_bits(
    count: int, seed: int, progress: Callable[[str, Counter[Verdict]], None] = lambda *_: None
) -> FlipReport:
    """Flips about ``count`` bits; raises Violation at the first that is not detected."""
    report = FlipReport(seed)
    with specimen() as prepared:
        for make, percent in PERCENT.items():
            with closing(make(prepared)) as target:
                wanted = max(1, count * percent // 100)
                counts = Counter(verdicts(target, wanted, seed))
            report.counts[target.name] = counts
            progress(target.name, counts)
    return report


def verdicts(target: Target, count: int, seed: int) -> Iterator[Verdict]:
    """The verdict on each of so many flips; those of one target follow from the seed alone."""
    dice = random.Random(f"{seed} {target.name}")
    done = 0
    while done < count:
        try:
            found = target.flip(dice)
        except Violation as violation:
            raise Violation(f"{target.name}, flip {done} of seed {seed}: {violation}") from None
        except Exception as error:
            raise Violation(f"{target.name}, flip {done} of seed {seed}: {error!r}") from error
        done += len(found)
        yield from found
