from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent import Extent
from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoRequest, Traffic
from kvstored.io.split import REQUEST_BYTES_MAX
from kvstored.store.read_stream import StoredChunk
from kvstored.tiers.extent_load import load_extent
from tests.support.stores import NAMESPACE, key

GEOMETRY = ChunkGeometry.of_slices((REQUEST_BYTES_MAX,))
EXTENT = Extent(1, 4096, GEOMETRY.extent_bytes)
SOURCE = StoredChunk(
    chunk=ChunkId(NAMESPACE, key(1)),
    record=ChunkRecord(
        extent=EXTENT,
        layout_id=b"l" * 32,
        token_count=16,
        epoch=1,
        stamp=1,
        header_checksum=1,
    ),
    device_id=b"d" * 16,
    geometry=GEOMETRY,
)


class PromptEngine:
    """Ends every request at once, the last one of an extent with ``error``."""

    def __init__(self, error: DeviceError | None = None) -> None:
        self.requests: list[IoRequest] = []
        self._error = error

    def submit(self, request: IoRequest) -> None:
        self.requests.append(request)
        is_last = request.offset + request.buffers[0].nbytes == EXTENT.end
        request.done(self._error if is_last else None)

    def close(self) -> None:
        """Nothing runs."""


def test_an_extent_is_read_in_the_background_in_parts() -> None:
    engine = PromptEngine()
    memory = memoryview(bytearray(2 * GEOMETRY.extent_bytes))
    assert load_extent(engine, SOURCE, memory) is None
    assert {request.traffic for request in engine.requests} == {Traffic.BACKGROUND}
    sizes = [request.buffers[0].nbytes for request in engine.requests]
    assert len(sizes) == 2
    assert sum(sizes) == GEOMETRY.extent_bytes


def test_the_error_of_a_part_is_that_of_the_extent() -> None:
    error = DeviceError("device", "read", "broken")
    memory = memoryview(bytearray(GEOMETRY.extent_bytes))
    assert load_extent(PromptEngine(error), SOURCE, memory) is error
