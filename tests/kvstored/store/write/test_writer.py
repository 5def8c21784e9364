import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader, SliceSum, page_checksum
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.engine import Foreground
from kvstored.io.transfer import REQUEST_BYTES_MAX
from kvstored.store.write.writer import SealedChunk, Writer, WriteTicket
from tests.kvstored.io.held_engine import HeldEngine
from tests.support.stores import NAMESPACE, key

GEOMETRY = ChunkGeometry.of_slices((REQUEST_BYTES_MAX, REQUEST_BYTES_MAX))
"""With its header a little more than two requests."""
EXTENT = Extent(1, 5 * 1024 * 1024, GEOMETRY.extent_bytes)


@pytest.fixture
def engine() -> HeldEngine:
    return HeldEngine()


@pytest.fixture
def writer(engine: HeldEngine) -> Writer:
    return Writer(engine=engine, device_ids=(b"a" * 16, b"b" * 16))


@pytest.fixture
def ends(writer: Writer) -> list[ChunkRecord | DeviceError]:
    """What became of the one chunk that was given to the writer."""
    outcomes: list[ChunkRecord | DeviceError] = []
    sealed = SealedChunk(
        chunk=ChunkId(NAMESPACE, key(1)),
        parent_key=bytes(32),
        layout_id=b"l" * 32,
        class_bytes=EXTENT.byte_count,
        token_count=16,
        geometry=GEOMETRY,
        slices=tuple(SliceSum(size, 1) for size in GEOMETRY.slice_bytes),
        frame=memoryview(bytearray(EXTENT.byte_count + HEADER_BYTES)),
    )
    writer.write(WriteTicket(sealed=sealed, extent=EXTENT, epoch=2, stamp=3), outcomes.append)
    return outcomes


def test_a_chunk_goes_to_its_extent_as_requests_of_the_class_of_writes(
    engine: HeldEngine, ends: list[ChunkRecord | DeviceError]
) -> None:
    assert len(engine.held) == 3
    assert {part.traffic for part in engine.held} == {Foreground.WRITE}
    assert {part.device_index for part in engine.held} == {1}
    assert engine.held[0].offset == EXTENT.offset
    assert sum(part.buffers[0].nbytes for part in engine.held) == GEOMETRY.extent_bytes


def test_it_is_pending_until_its_last_byte_is_written(
    engine: HeldEngine, writer: Writer, ends: list[ChunkRecord | DeviceError]
) -> None:
    page = bytes(engine.held[0].buffers[0][:HEADER_BYTES])
    for _ in range(3):
        assert writer.pending_writes == 1
        assert ends == []
        engine.end(-1)
    assert writer.pending_writes == 0
    (record,) = ends
    assert isinstance(record, ChunkRecord)
    assert record.header_checksum == page_checksum(page)
    assert ExtentHeader.decode(page).offset == record.extent.offset == EXTENT.offset


def test_an_error_of_any_part_fails_it_once(
    engine: HeldEngine, writer: Writer, ends: list[ChunkRecord | DeviceError]
) -> None:
    error = DeviceError("device", "write", "broken")
    engine.end(1, error)
    engine.end()
    engine.end()
    assert ends == [error]
    assert writer.pending_writes == 0
