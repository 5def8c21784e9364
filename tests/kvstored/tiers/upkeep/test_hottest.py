from collections.abc import Iterable

from kvstored.format.identity import ChunkId
from kvstored.tiers.upkeep.hottest import HotSequence, hottest_sequences

SPACE = b"n" * 16


def key(number: int) -> bytes:
    return bytes([number]) * 32


def test_the_last_chunk_tells_how_often_a_sequence_is_read() -> None:
    reads = {key(1): 9.0, key(2): 2.0, key(3): 5.0}

    def in_dram(chunks: Iterable[ChunkId]) -> set[ChunkId]:
        return {chunk for chunk in chunks if chunk.key == key(1)}

    def hottest(count: int) -> list[HotSequence]:
        return hottest_sequences(
            [
                (SPACE, "rare", (key(1), key(2))),
                (SPACE, "often", (key(1), key(3))),
                (SPACE, "never", (key(4),)),
                (SPACE, "empty", ()),
            ],
            read_count=lambda chunk: reads.get(chunk.key, 0.0),
            which_are_in_dram=in_dram,
            count=count,
        )

    assert [(one.name, one.reads, one.chunk_count, one.dram_chunk_count) for one in hottest(5)] == [
        ("often", 5.0, 2, 1),
        ("rare", 2.0, 2, 1),
    ]
    assert [one.name for one in hottest(1)] == ["often"]
