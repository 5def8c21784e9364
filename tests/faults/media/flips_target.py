"""What flips are tried on: media as a real store leaves them, and what a target is."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kvstored.format.geometry import ChunkGeometry
from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.entry import Table
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.index.snapshot import SNAPSHOT_FILE
from kvstored.store.read.chunk_source import StoredChunk
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.faults.media.lab import MAP_BYTES, Lab, fresh_lab
from tests.faults.media.served import ENCODED_FIRST, LAYOUT, chunk_id, layout_of, lengths_of
from tests.support.stores import NAMESPACE, key

CHUNKS = 24
ENCODED_CHUNKS = range(ENCODED_FIRST, ENCODED_FIRST + 6)
QUARANTINED = (20, 21, 22, 23)
LONG_SEQUENCE = 120
"""Its record does not fit one page of the index."""


class Verdict(Enum):
    """What became of a flip."""

    DETECTED = "detected"
    HARMLESS = "in padding"


class Violation(AssertionError):  # noqa: N818 - what is searched for, found
    """A flip that nobody noticed, or that raised what nobody expects."""


class Target:
    """Bytes on media, and the code that must see that one of them is wrong."""

    name: str

    def flip(self, dice: random.Random) -> list[Verdict]:
        """Flips one bit, or some of them apart, and takes them back; raises Violation."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives back what the target has opened."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the index."""

    table: Table
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Specimen:
    """A store that was stopped cleanly: its devices and index, and what was in it."""

    lab: Lab
    sources: list[StoredChunk]
    entries: list[Entry]
    snapshot: bytes

    @property
    def index_folder(self) -> Path:
        """Where the index lies."""
        return self.lab.index_path


@contextmanager
def specimen() -> Iterator[Specimen]:
    """A store with every kind of structure on media."""
    with fresh_lab(slab_count=4) as lab:
        with lab.open() as served:
            served.stops_cleanly = True
            served.store.layouts.register(LAYOUT)
            served.store.layouts.register(other_layout())
            served.put_durable(range(CHUNKS))
            served.store.layouts.register(layout_of(ENCODED_FIRST))
            served.put_durable(ENCODED_CHUNKS)
            records = served.records()
            sources = [
                served.store._store.source(
                    chunk_id(number),
                    records[number],
                    ChunkGeometry.of_slices(lengths_of(number)),
                )
                for number in (*range(QUARANTINED[0]), *ENCODED_CHUNKS)
            ]
            for number in QUARANTINED:
                served.store._store.quarantine(chunk_id(number), records[number])
            served.index.apply(IndexChange(sequence_puts=tuple(sequences())))
            # Two layouts and the quarantine are committed behind the calls.
            served.assert_released()
        entries = entries_of(lab.index_path)
        snapshot = (lab.index_path / SNAPSHOT_FILE).read_bytes()
        assert len({entry.table for entry in entries}) == len(Table)
        yield Specimen(lab, sources, entries, snapshot)


def entries_of(index_folder: Path) -> list[Entry]:
    """Every entry of an index."""
    index = Index.open(index_folder, map_bytes=MAP_BYTES, readonly=True)
    try:
        return [
            Entry(table, key, value) for table in Table for key, value in index.walks._walk(table)
        ]
    finally:
        index.close()


def sequences() -> Iterator[tuple[bytes, str, SequenceRecord]]:
    """Short ones and a long one."""
    for name, key_count in (("first", 3), ("empty", 0), ("long", LONG_SEQUENCE)):
        record = SequenceRecord(
            layout_id=LAYOUT.layout_id, keys=tuple(map(key, range(key_count))), dropped_chunks=1
        )
        yield NAMESPACE, name, record


def other_layout() -> StateLayout:
    """A layout that no chunk has."""
    return StateLayout(model="other", dtype="bfloat16", layers=(LayerState(StateKind.KV, 256),) * 2)


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes, one bit of them wrong."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
