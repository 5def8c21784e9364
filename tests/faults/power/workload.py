"""A store at work, to be run under strace: `python -m tests.faults.power.workload FOLDER SEED`.

Three starts of one store, each in a process of its own: the first ends without a clean
stop, the others with one. Every start puts, deletes, puts again and evicts, and lets sequences
grow; what it does next mostly does not wait for what it did before. A third argument names a
product that is broken on purpose.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from kvstored.daemon import open_store
from kvstored.format.identity import ChunkId
from kvstored.store.write.writer import SealedChunk
from kvstored.tiers.chunks import nvme_victims
from kvstored.tiers.chunks.requests import NewChunk, PutRequest
from kvstored.tiers.tiered_store import TieredStore
from kvstored_contract.reasons import Reason
from tests.faults.power.breakage import Breakage, break_product
from tests.faults.power.chunks import (
    LAYOUTS,
    NAMESPACE,
    NUMBERS,
    chunk_of,
    config_of,
    layout_of,
    lengths_of,
    number_of,
    payload_of,
    placement_of,
)
from tests.faults.power.growth import Growth
from tests.faults.power.marks import MARKS_FILE, Mark, MarkKind
from tests.faults.sequence_model import SequenceModel
from tests.support.rows import TOKEN_IDS
from tests.support.waiting import PATIENCE_S

DISK_FOLDER = "disk"
"""What of the workload's folder the log is about."""
STARTS = 3
OPERATIONS = 30
SEQUENCES_SHARE = 0.8
"""Operations that are followed by one of a sequence."""
VICTIMS_PER_ROUND = 3
"""Evictions at once: a store of 40 chunks would be almost empty behind the usual round."""


class Worker:
    """Does random things to one store and marks each of them."""

    def __init__(
        self, store: TieredStore, versions: dict[int, int], growth: Growth, marks: int
    ) -> None:
        self._store = store
        self._versions = versions
        self._growth = growth
        self._marks = marks
        self._pending: list[Future[Any]] = []
        self._mark_everything()

    def run(self, random: Random) -> None:
        """All operations of one start; returns when everything is answered."""
        for _ in range(OPERATIONS):
            if random.random() < 0.75:
                layout = random.choice(LAYOUTS)
                numbers = [number for number in NUMBERS if layout_of(number) == layout]
                self._put(random.sample(numbers, random.randint(1, 4)))
            else:
                self._delete(random.sample(NUMBERS, random.randint(1, 4)))
            if random.random() < SEQUENCES_SHARE:
                self._growth.step(random)
            if random.random() < 0.4:
                self._settle()
        self._growth.settle()
        self._settle()

    def _settle(self) -> None:
        wait(self._pending, timeout=PATIENCE_S)
        self._pending.clear()

    def _put(self, numbers: list[int]) -> None:
        layout = layout_of(numbers[0])
        self._store.layouts.register(layout)
        versions = [self._versions[number] for number in numbers]
        for number, version in zip(numbers, versions, strict=True):
            self._mark(MarkKind.PUT, number, version)
        tickets = self._store.put_path.put(
            PutRequest(
                namespace_id=NAMESPACE,
                layout=layout,
                chunks=tuple(
                    NewChunk(
                        chunk_of(number).key,
                        b"",
                        layout.chunk_tokens,
                        number,
                        lengths_of(number, version) if layout.is_encoded else (),
                    )
                    for number, version in zip(numbers, versions, strict=True)
                ),
                source=memoryview(b"".join(map(payload_of, numbers, versions))),
                placement=placement_of(layout),
                deadline=time.monotonic() + PATIENCE_S,
            )
        )
        for ticket, number, version in zip(tickets, numbers, versions, strict=True):
            if ticket.durable is not None:
                self._mark_when_durable(ticket.durable, number, version)
                self._pending.append(ticket.durable)

    def _delete(self, numbers: list[int]) -> None:
        for number in numbers:
            self._versions[number] += 1
        keys = [chunk_of(number).key for number in numbers]
        self._pending.append(self._store.delete(NAMESPACE, keys))

    def _mark(self, kind: MarkKind, number: int, version: int = 0) -> None:
        Mark(kind, number, version).write(self._marks)

    def _mark_when_durable(self, future: Future[Reason], number: int, version: int) -> None:
        def done(outcome: Future[Reason]) -> None:
            if outcome.result() is Reason.UNSPECIFIED:
                self._mark(MarkKind.DURABLE, number, version)

        future.add_done_callback(done)

    def _mark_everything(self) -> None:
        """Marks what the store does by itself too: evictions, and the first word of an ack."""
        chunks = self._store._store
        write, delete, evict = chunks.writes.write, chunks.delete, chunks.evict

        def marked_write(sealed: SealedChunk, extent: Any) -> Future[Reason]:
            number = number_of(sealed.chunk)
            if number not in NUMBERS:
                # Nobody puts a chunk of a sequence: it is written when its rows are complete.
                self._mark(MarkKind.PUT, number)
            outcome = write(sealed, extent)
            self._mark_when_durable(outcome, number, self._versions.get(number, 0))
            self._pending.append(outcome)
            return outcome

        def marked_delete(chunk: ChunkId) -> Future[bool]:
            number = number_of(chunk)
            self._mark(MarkKind.DELETE, number)
            outcome = delete(chunk)
            outcome.add_done_callback(lambda _: self._mark(MarkKind.DELETED, number))
            return outcome

        def marked_evict(
            victims: Sequence[ChunkId], *, is_whole: bool = False
        ) -> list[Future[bool]]:
            for chunk in victims:
                self._mark(MarkKind.DELETE, number_of(chunk))
            outcomes = evict(victims, is_whole=is_whole)
            for chunk in victims:
                # None where it was pinned and stays, or is gone by now.
                if (outcome := chunks._deleting.get(chunk)) is not None:
                    outcome.add_done_callback(partial(self._mark_when_deleted, number_of(chunk)))
            return outcomes

        chunks.writes.write = marked_write  # type: ignore[method-assign]
        chunks.delete = marked_delete  # type: ignore[method-assign]
        chunks.evict = marked_evict  # type: ignore[assignment, method-assign]

    def _mark_when_deleted(self, number: int, _: Future[bool]) -> None:
        self._mark(MarkKind.DELETED, number)


def run_start(folder: Path, random: Random, *, stops_cleanly: bool) -> None:
    """One start of the store, in this process, which ends with it."""
    nvme_victims.VICTIMS_PER_ROUND = VICTIMS_PER_ROUND
    known = folder / "known.json"
    versions, encoded = (
        json.loads(known.read_text()) if known.exists() else ([0] * len(NUMBERS), {})
    )
    models = {name: SequenceModel.decode(fields) for name, fields in encoded.items()}
    marks = os.open(folder / DISK_FOLDER / MARKS_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with open_store(config_of(folder / DISK_FOLDER, depth_per_device=2)) as (store, _):
        by_number = dict(enumerate(versions))
        growth = Growth(store, models, marks, first_token=random.randrange(TOKEN_IDS))
        Worker(store, by_number, growth, marks).run(random)
        encoded = {name: model.encode() for name, model in models.items()}
        known.write_text(json.dumps([list(by_number.values()), encoded]))
        if not stops_cleanly:
            os._exit(0)
        growth.end_session()
        store.close()


def main(arguments: list[str]) -> None:
    """Runs every start in its own process; exits 1 when one fails."""
    folder, seed, *broken = arguments
    if broken:
        break_product(Breakage(broken[0]))
    for start in range(STARTS):
        child = os.fork()
        if child == 0:
            run_start(Path(folder), Random(f"{seed}-{start}"), stops_cleanly=start > 0)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
