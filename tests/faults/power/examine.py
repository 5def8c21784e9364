"""One process's share of a lab: `python -m tests.faults.power.examine` and its arguments as JSON.

Reads a recording, rebuilds its part of the planned states and writes one line of JSON:
how many it looked at, and the first one that breaks a promise. Before each state it notes
which one that is in a file, so that a death of this process tells where.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults.power.disk import Choice, Pending
from tests.faults.power.plan import Moment, Recording, moments, plan_states
from tests.faults.power.recording import load_recording
from tests.faults.power.recovery import Examiner


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one process of a lab has to do.

    ``folder`` holds the recording, ``memory`` is where states are put. ``count`` and
    ``seed`` are those of the whole plan.
    """

    folder: str
    memory: str
    count: int
    seed: int
    part: int
    parts: int

    @property
    def position_file(self) -> Path:
        """Where the process notes the state that it looks at."""
        return Path(self.memory, f"position-{self.part}")

    @property
    def end_file(self) -> Path:
        """Is there as soon as a process has found a broken promise: then all of them end."""
        return Path(self.memory, "end")


@dataclass(slots=True, kw_only=True)
class Share:
    """What one process has found; ``broken`` describes the first state that breaks a promise."""

    state_count: int = 0
    moment_count: int = 0
    broken: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)


def examine(task: Task) -> Share:
    """Looks at every ``parts``-th state of the plan, until one breaks a promise."""
    recording = load_recording(Path(task.folder))
    planned = plan_states(recording, count=task.count, seed=task.seed)
    share = Share(moment_count=len(planned))
    examiner = Examiner(Path(task.memory, f"store-{task.part}"))
    with examiner.product():
        for number, (moment, pending, choice) in enumerate(_states(recording, planned)):
            if number % task.parts != task.part:
                continue
            if task.end_file.exists():
                break
            where = _described(moment, pending, choice)
            task.position_file.write_text(where)
            found = examiner.examine(moment.disks.image(pending, choice), moment.ledger)
            share.state_count += 1
            if found:
                share.broken = [where, *found]
                task.end_file.touch()
                break
    share.seen = dict(examiner.seen)
    return share


def _states(
    recording: Recording, planned: dict[int, list[Choice]]
) -> Iterator[tuple[Moment, Pending, Choice]]:
    """The planned states in the order of the log."""
    for moment in moments(recording):
        pending = moment.disks.pending()
        for choice in planned[moment.number]:
            yield moment, pending, choice


def _described(moment: Moment, pending: Pending, choice: Choice) -> str:
    """A state in one line: the step of the log, and what of the pending is on media."""
    counts, names = choice
    pages = [
        f"{moment.disks.name_of(inode)} page {page}: {count} of {len(pieces)} writes"
        for (inode, page, pieces), count in zip(pending.pages, counts, strict=True)
    ]
    every = pending.renamings[-1]
    return f"step {moment.number}, names: {len(names)} of {len(every)}; " + ", ".join(pages)


def main(arguments: list[str]) -> None:
    """Prints what this share has found."""
    share = examine(Task(**json.loads(arguments[0])))
    sys.stdout.write(json.dumps(asdict(share)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
