"""Which sequences are read most."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice

from kvstored.format.identity import ChunkId
from kvstored.store.index.index import Index
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.promoter import Promoter

SEQUENCES_MAX = 4096
"""Sequences that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSequence:
    """A sequence with its chunks, those of them in DRAM, and reads of its last chunk lately."""

    namespace_id: bytes
    name: str
    chunk_count: int
    dram_chunk_count: int
    reads: float


class Hottest:
    """Finds the sequences of an index that are read most. Thread-safe; raises IndexFailure."""

    def __init__(self, index: Index, dram: DramTier, promoter: Promoter) -> None:
        self._index = index
        self._dram = dram
        self._promoter = promoter

    def find(self, count: int) -> list[HotSequence]:
        """Up to ``count`` of them, the most often read first."""
        return hottest_sequences(
            (
                (namespace_id, name, record.keys)
                for namespace_id, name, record in self._index.walks.named_sequences()
            ),
            read_count=self._promoter.read_count,
            which_are_in_dram=self._dram.which_are_here,
            count=count,
        )


NamedKeys = tuple[bytes, str, tuple[bytes, ...]]
"""Namespace id, name and keys of a sequence."""


def hottest_sequences(
    sequences: Iterable[NamedKeys],
    *,
    read_count: Callable[[ChunkId], float],
    which_are_in_dram: Callable[[Iterable[ChunkId]], set[ChunkId]],
    count: int,
) -> list[HotSequence]:
    """Up to ``count`` sequences that were read lately, the most often read first.

    A sequence counts by the reads of its last chunk: others may share those before it.
    """

    def read() -> Iterator[tuple[float, NamedKeys]]:
        for one in islice(sequences, SEQUENCES_MAX):
            namespace_id, _, keys = one
            if keys and (reads := read_count(ChunkId(namespace_id, keys[-1]))) > 0:
                yield reads, one

    return [
        HotSequence(
            namespace_id=namespace_id,
            name=name,
            chunk_count=len(keys),
            dram_chunk_count=len(which_are_in_dram({ChunkId(namespace_id, key) for key in keys})),
            reads=reads,
        )
        for reads, (namespace_id, name, keys) in nlargest(count, read(), key=lambda entry: entry[0])
    ]
