import queue
import threading
from pathlib import Path
from unittest.mock import Mock

from kvstored.counters import Counters
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.engine import Background, IoRequest
from kvstored.io.transfer import REQUEST_BYTES_MAX
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.tiers.chunks.damage import DamageControl
from kvstored.tiers.chunks.extent_load import FrameLoad, FrameLoader, NotLoaded, load_extent
from tests.support.devices import OnceWrongDevice, Wrapping
from tests.support.scrubs import flip, quarantined, stored
from tests.support.stores import LAYOUT, NAMESPACE, StoreUnderTest, key, open_store
from tests.support.waiting import PATIENCE_S, wait_until

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
    loaded = load_extent(engine, SOURCE, memory, background=Background.PROMOTION)
    assert loaded.result(0) is None
    assert {request.traffic for request in engine.requests} == {Background.PROMOTION}
    sizes = [request.buffers[0].nbytes for request in engine.requests]
    assert len(sizes) == 2
    assert sum(sizes) == GEOMETRY.extent_bytes


def test_the_error_of_a_part_is_that_of_the_extent() -> None:
    error = DeviceError("device", "read", "broken")
    memory = memoryview(bytearray(GEOMETRY.extent_bytes))
    assert load_extent(PromptEngine(error), SOURCE, memory, background=None).result(0) is error


class HeldEngine:
    """Ends no request before the test wants it."""

    def __init__(self) -> None:
        self.requests: queue.Queue[IoRequest] = queue.Queue()
        self.count = 0

    def submit(self, request: IoRequest) -> None:
        self.count += 1
        self.requests.put(request)

    def close(self) -> None:
        """Nothing runs."""


def test_who_loads_an_extent_need_not_wait_for_it() -> None:
    engine = HeldEngine()
    memory = memoryview(bytearray(GEOMETRY.extent_bytes))
    loaded = load_extent(engine, SOURCE, memory, background=None)
    engine.requests.get().done(None)
    assert not loaded.done()
    engine.requests.get().done(None)
    assert loaded.result(0) is None


def test_the_end_of_the_daemon_waited_for_every_suspicion_to_be_confirmed() -> None:
    """Bug: up to 1,024 chunks were read again first, in the scrub's share of the devices."""
    engine = HeldEngine()
    store = Mock(find=lambda _: [SOURCE.record])
    damage = DamageControl(store=store, engine=engine, counters=Counters())
    for _ in range(3):
        damage.suspect(SOURCE)
    parts = [engine.requests.get(timeout=PATIENCE_S) for _ in range(2)]
    closing = threading.Thread(target=damage.close)
    closing.start()
    wait_until(lambda: damage._work._queue.qsize() == 3)
    for part in parts:
        part.done(DeviceError("device", "read", "broken"))
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert engine.count == len(parts)
    assert store.failures.report.call_count == 1


def comes_to_dram(opened: StoreUnderTest) -> bool:
    """Whether chunk 1 is brought from its device."""
    store, loader = opened.store._store, opened.store._promoter._loader
    (record,) = store.find([SOURCE.chunk])
    assert record is not None
    store.pins.pin([SOURCE.chunk])
    try:
        geometry = ChunkGeometry.of(LAYOUT, record.token_count)
        load = loader.begin(store.source(SOURCE.chunk, record, geometry), may_evict=lambda _: False)
        assert isinstance(load, FrameLoad)
        return loader.end(load)
    finally:
        store.pins.unpin([SOURCE.chunk])


def test_one_wrong_transfer_quarantined_a_sound_chunk(tmp_path: Path) -> None:
    """Bug: what was brought to DRAM was read once, and that read decided."""
    devices = Wrapping(OnceWrongDevice)
    with open_store(tmp_path, wrap=devices) as opened:
        stored(opened, [1])
        for device in devices:
            device.is_wrong = True
        assert comes_to_dram(opened)
        counters = opened.stats().counters
        assert (counters["unconfirmed_chunks"], counters.get("quarantined_chunks")) == (1, None)


def test_what_two_reads_find_damaged_is_quarantined(opened: StoreUnderTest) -> None:
    stored(opened, [1])
    flip(opened, 1, HEADER_BYTES)
    assert not comes_to_dram(opened)
    wait_until(lambda: quarantined(opened) == {key(1)})
    assert "unconfirmed_chunks" not in opened.stats().counters


def test_a_chunk_larger_than_a_slab_of_dram_waited_for_room() -> None:
    """Bug: there is never any, so that it was tried again and again."""
    dram = Mock()
    dram.space.class_bytes_max = SOURCE.record.extent.byte_count - 1
    loader = FrameLoader(store=Mock(), dram=dram, engine=Mock(), background=Background.PREFETCH)
    assert loader.begin(SOURCE, may_evict=lambda _: True) is NotLoaded.NOT_NEEDED
    dram.claim.assert_not_called()


def test_a_chunk_that_is_there_is_not_taken_for_one_without_room() -> None:
    dram = Mock()
    dram.space.class_bytes_max = SOURCE.record.extent.byte_count
    loader = FrameLoader(store=Mock(), dram=dram, engine=Mock(), background=Background.PREFETCH)
    dram.claim.return_value = Mock(is_new=False)
    assert loader.begin(SOURCE, may_evict=lambda _: True) is NotLoaded.NOT_NEEDED
    dram.claim.return_value = None
    assert loader.begin(SOURCE, may_evict=lambda _: True) is NotLoaded.NO_ROOM
