"""Which states of a log are looked at: every cut, and at each cut as many as there is room for.

Pure and the same for the same seed, so that several processes can share one plan.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.faults.power.disk import Choice, Disks, Pending, steps
from tests.faults.power.log import Event, Written
from tests.faults.power.marks import MARKS_FILE, Ledger, parse_mark

SAMPLES_PER_WANTED = 4
"""Draws for each state that is wanted at a cut: some were drawn before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The disks before a log, and the log."""

    files: dict[str, bytes]
    events: list[Event]


@dataclass(slots=True, kw_only=True)
class Moment:
    """The disks and the promises at one step of a log. They go on with the next step."""

    number: int
    disks: Disks
    ledger: Ledger


def moments(recording: Recording) -> Iterator[Moment]:
    """Every moment at which a cut differs from one a step before."""
    disks, ledger = Disks(recording.files), Ledger()
    yield Moment(number=0, disks=disks, ledger=ledger)
    for number, (event, is_end) in enumerate(steps(recording.events), start=1):
        if event.path == MARKS_FILE:
            if is_end or not isinstance(event, Written):
                continue
            mark = parse_mark(event.data)
            ledger.take(mark)
            if not mark.is_answer:
                # This promises less than a moment before.
                continue
        elif is_end:
            disks.end(event)
        else:
            disks.begin(event)
        yield Moment(number=number, disks=disks, ledger=ledger)


def plan_states(recording: Recording, *, count: int, seed: int) -> dict[int, list[Choice]]:
    """Different states to look at by the number of their moment; ``count`` if there are.

    Moments with few states come first: what they cannot use goes to those with many.
    """
    pendings = [
        (moment.number, moment.disks.pending(), moment.ledger.answer_count)
        for moment in moments(recording)
    ]
    pendings.sort(key=lambda entry: entry[1].choice_count)
    random = Random(seed)
    planned: dict[int, list[Choice]] = {}
    seen: set[object] = set()
    left = count
    for index, (number, pending, answer_count) in enumerate(pendings):
        wanted = min(left, int(left / (len(pendings) - index) + random.random()))
        chosen = planned[number] = []
        for choice in _candidates(pending, wanted, random):
            identity = pending.identity(choice), answer_count
            if len(chosen) < wanted and identity not in seen:
                seen.add(identity)
                chosen.append(choice)
        left -= len(chosen)
    return planned


def _candidates(pending: Pending, wanted: int, random: Random) -> Iterator[Choice]:
    """All choices where few are possible; else the telling ones, then random ones."""
    if pending.choice_count <= wanted:
        yield from pending.all_choices()
        return
    whole = tuple(len(pieces) for _, _, pieces in pending.pages)
    none = (0,) * len(whole)
    yield none, pending.renamings[0]
    yield whole, pending.renamings[-1]
    singles = [
        pages
        for unit, full in enumerate(whole)
        for pages in (
            (*whole[:unit], full - 1, *whole[unit + 1 :]),
            (*none[:unit], full, *none[unit + 1 :]),
        )
    ]
    random.shuffle(singles)
    for pages in singles:
        yield pages, random.choice(pending.renamings)
    for _ in range(SAMPLES_PER_WANTED * wanted):
        likelihood = random.choice((0.1, 0.5, 0.9))
        pages = tuple(
            full if random.random() < likelihood else random.randrange(full) for full in whole
        )
        yield pages, random.choice(pending.renamings)
