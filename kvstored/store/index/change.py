"""Changes of the index as values: what one durable transaction does. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.format.slice_lengths import SliceLengths
from kvstored.store.index.meta import IndexMeta
from kvstored_contract.layout import StateLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChange:
    """What one transaction does; the fields are applied in this order.

    ``deletes`` drop chunks. ``quarantines`` move chunks to the quarantine table: the
    chunk's entry is dropped only while it is still that record. ``releases`` drop the
    quarantine entries that start at an extent. ``puts`` store records, so a chunk that
    is both deleted and put is there afterwards. ``lengths`` are those of the slices of
    encoded chunks that are put; they go with the chunk, or with the next put of it.
    ``sequence_deletes`` come before ``sequence_puts``; both name a sequence by namespace id
    and name.
    """

    deletes: tuple[ChunkId, ...] = ()
    quarantines: tuple[tuple[ChunkId, ChunkRecord], ...] = ()
    releases: tuple[Extent, ...] = ()
    puts: tuple[tuple[ChunkId, ChunkRecord], ...] = ()
    lengths: tuple[tuple[ChunkId, SliceLengths], ...] = ()
    layouts: tuple[StateLayout, ...] = ()
    sequence_deletes: tuple[tuple[bytes, str], ...] = ()
    sequence_puts: tuple[tuple[bytes, str, SequenceRecord], ...] = ()
    meta: IndexMeta | None = None

    @classmethod
    def merged(cls, changes: Iterable["IndexChange"]) -> "IndexChange":
        """One change with the effect of all ``changes``, applied one after the other."""
        merger = _Merger()
        for change in changes:
            merger.add(change)
        return merger.result()


class _Merger:
    """Collects changes. Dictionaries are ordered sets here: the last operation wins."""

    def __init__(self) -> None:
        self._deletes: dict[ChunkId, None] = {}
        self._quarantines: list[tuple[ChunkId, ChunkRecord]] = []
        self._releases: dict[tuple[int, int], Extent] = {}
        self._puts: dict[ChunkId, ChunkRecord] = {}
        self._lengths: dict[ChunkId, SliceLengths] = {}
        self._layouts: dict[StateLayout, None] = {}
        self._sequence_deletes: dict[tuple[bytes, str], None] = {}
        self._sequence_puts: dict[tuple[bytes, str], SequenceRecord] = {}
        self._meta: IndexMeta | None = None

    def add(self, change: IndexChange) -> None:
        """Adds the change that comes next."""
        for chunk in change.deletes:
            self._delete(chunk)
        for chunk, record in change.quarantines:
            self._quarantine(chunk, record)
        for extent in change.releases:
            self._releases[extent.device_index, extent.offset] = extent
        for chunk, record in change.puts:
            self._puts[chunk] = record
            self._lengths.pop(chunk, None)
        self._lengths.update(change.lengths)
        self._layouts.update(dict.fromkeys(change.layouts))
        for name in change.sequence_deletes:
            self._sequence_deletes[name] = None
            self._sequence_puts.pop(name, None)
        for namespace_id, text, sequence in change.sequence_puts:
            self._sequence_puts[namespace_id, text] = sequence
        self._meta = change.meta or self._meta

    def result(self) -> IndexChange:
        """Everything that was added, as one change."""
        return IndexChange(
            deletes=tuple(self._deletes),
            quarantines=tuple(self._quarantines),
            releases=tuple(self._releases.values()),
            puts=tuple(self._puts.items()),
            lengths=tuple(self._lengths.items()),
            layouts=tuple(self._layouts),
            sequence_deletes=tuple(self._sequence_deletes),
            sequence_puts=tuple([(*name, record) for name, record in self._sequence_puts.items()]),
            meta=self._meta,
        )

    def _delete(self, chunk: ChunkId) -> None:
        self._deletes[chunk] = None
        self._puts.pop(chunk, None)
        self._lengths.pop(chunk, None)

    def _quarantine(self, chunk: ChunkId, record: ChunkRecord) -> None:
        """A put of the same record in the same group would otherwise come after it."""
        if self._puts.get(chunk) == record:
            self._delete(chunk)
        self._quarantines.append((chunk, record))
        self._releases.pop((record.extent.device_index, record.extent.offset), None)
