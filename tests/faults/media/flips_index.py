"""Flips in the file of the index under an open environment, asked through ``Index``."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvstored.store.index.entry import Table
from kvstored.store.index.index import DATA_FILE, Index, IndexFailure
from kvstored.store.index.scan import scan_chunks
from tests.faults.media.flips_target import (
    ENCODED_CHUNKS,
    Entry,
    Specimen,
    Target,
    Verdict,
    Violation,
    sequences,
)
from tests.faults.media.lab import MAP_BYTES
from tests.faults.media.served import LAYOUT, chunk_id
from tests.support.stores import NAMESPACE

Answers = set[object]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of an entry lie in the file: once, and again in pages not in use."""

    entry: Entry
    what: str
    byte_count: int
    positions: tuple[int, ...]


class IndexFile:
    """The file of an index, flipped under the environment that has it open."""

    def __init__(self, specimen: Specimen) -> None:
        self.index = Index.open(specimen.index_folder, map_bytes=MAP_BYTES, readonly=True)
        path = specimen.index_folder / DATA_FILE
        # The file and LMDB's map of it are the same memory.
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._places = list(places(path.read_bytes(), specimen.entries))

    @contextmanager
    def one_flip(self, dice: random.Random) -> Iterator[str]:
        """Some bit of some entry is wrong meanwhile; yields which."""
        place = dice.choice(self._places)
        bit = dice.randrange(8 * place.byte_count)
        self._flip(place, bit)
        try:
            entry = place.entry
            yield f"bit {bit} of the {place.what} of {entry.table.name} {entry.key.hex()}"
        finally:
            self._flip(place, bit)

    def close(self) -> None:
        """Closes file and environment."""
        os.close(self._file)
        self.index.close()

    def _flip(self, place: Place, bit: int) -> None:
        for position in place.positions:
            (byte,) = os.pread(self._file, 1, position + bit // 8)
            os.pwrite(self._file, bytes([byte ^ 1 << bit % 8]), position + bit // 8)


class IndexFileTarget(Target):
    """Keys and values where they lie in LMDB's file, which verifies neither.

    Every look-up of the index may give what it gave before or nothing. The walk that
    looks through the index must find the damage, as an entry or as an unsound table.
    """

    name = "index file"

    def __init__(self, specimen: Specimen) -> None:
        self._file = IndexFile(specimen)
        self._index = self._file.index
        self._expected = self._answers()
        assert self._problem_count() == 0

    def flip(self, dice: random.Random) -> list[Verdict]:
        with self._file.one_flip(dice) as where:
            try:
                wrong = self._answers() - self._expected
            except IndexFailure:
                wrong = set()
            if wrong:
                raise Violation(f"{where} gives {wrong}")
            if not self._problem_count():
                raise Violation(f"{where} is not found")
        return [Verdict.DETECTED]

    def close(self) -> None:
        self._file.close()

    def _answers(self) -> Answers:
        """Everything that the index says when it is asked for what is in it."""
        index = self._index
        chunks = [chunk_id(number) for number in range(40)]
        found: Answers = set(zip(chunks, index.get_many(chunks), strict=True))
        found = {answer for answer in found if answer[1] is not None}  # type: ignore[index]
        found |= set(index.walks.records())
        found |= self._lengths()
        found |= {("quarantine", *entry) for entry in index.walks.quarantined()}
        found |= {("name", name) for name in index.walks.sequences(NAMESPACE)}
        for _, name, _ in sequences():
            sequence = index.sequence(NAMESPACE, name)
            found |= {(name, sequence)} if sequence is not None else set()
        layout = index.layout(LAYOUT.layout_id)
        found |= {layout} if layout is not None else set()
        meta = index.meta()
        return found | ({meta} if meta is not None else set())

    def _lengths(self) -> Answers:
        """What the index says of the slices of encoded chunks that it knows."""
        entries = [
            (chunk, record)
            for chunk in map(chunk_id, ENCODED_CHUNKS)
            if (record := self._index.get(chunk)) is not None
        ]
        lengths = zip(entries, self._index.lengths(entries), strict=True)
        return {(chunk, found) for (chunk, _), found in lengths if found is not None}

    def _problem_count(self) -> int:
        """What the walk before a start finds; an index without meta data is rebuilt."""
        try:
            others = [table for table in Table if table is not Table.CHUNKS]
            found = sum(1 for _ in self._index.walks.damaged_entries(others))
            found += sum(len(scanned.damaged_keys) for scanned in scan_chunks(self._index.walks))
        except IndexFailure:
            return 1
        return found + (self._index.meta() is None)


def places(file: bytes, entries: list[Entry]) -> Iterator[Place]:
    """Where keys and values of entries lie; a value of some length lies apart from its key."""
    for entry in entries:
        values = tuple(positions(file, entry.value))
        assert values, entry
        yield Place(entry, "value", len(entry.value), values)
        keys = tuple(
            start - len(entry.key)
            for start in values
            if file[start - len(entry.key) : start] == entry.key
        )
        if keys:
            yield Place(entry, "key", len(entry.key), keys)


def positions(file: bytes, wanted: bytes) -> Iterator[int]:
    """Every offset where these bytes lie."""
    start = file.find(wanted)
    while start >= 0:
        yield start
        start = file.find(wanted, start + 1)
