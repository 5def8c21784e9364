import hashlib

from hypothesis import given

from kvstored.format.checksum import checksum
from kvstored.format.identity import (
    CHUNK_ID_BYTES,
    NAMESPACE_ID_BYTES,
    ChunkId,
    namespace_id,
)
from tests.kvstored.format.strategies import chunk_ids


@given(chunk_ids)
def test_round_trip(chunk: ChunkId) -> None:
    data = chunk.encode()
    assert len(data) == CHUNK_ID_BYTES
    assert ChunkId.decode(data) == chunk


def test_namespace_id_is_the_start_of_a_sha256() -> None:
    assert namespace_id("team-ü") == hashlib.sha256("team-ü".encode()).digest()[:16]
    assert len(namespace_id("")) == NAMESPACE_ID_BYTES


def test_checksum_is_xxh3_64() -> None:
    # The value that the xxHash specification gives for empty input with seed 0.
    assert checksum(b"") == 0x2D06800538D394C2
    assert checksum(memoryview(b"abc")) == checksum(b"abc") != checksum(b"abd")
