"""One load of a store in memory: order, meeting, failures, and what it gives back."""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.orders import LoadOrder
from engine_adapters.vllm.worker_side.engine_turn import EngineTurn
from engine_adapters.vllm.worker_side.load_job import ASK_AHEAD_S, LoadJob, LoadPlace
from kvstored_client import LayerState, SliceState, StateKind, StateLayout
from kvstored_client.testing import ServedRead
from tests.engine_adapters.vllm.engine_client import ROOM_BYTES, EngineClient

LAYERS, BLOCK_TOKENS, CHUNK_BLOCKS, CHUNKS = 2, 4, 2, 6
TOKEN_BYTES = 1024
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.KV, TOKEN_BYTES),) * LAYERS,
    chunk_tokens=BLOCK_TOKENS * CHUNK_BLOCKS,
)
CHAIN = tuple(bytes([chunk]) * 32 for chunk in range(CHUNKS))
BLOCK_IDS = tuple(range(3, 3 + CHUNKS * CHUNK_BLOCKS))


class AtOnce(Executor):
    """Runs what is submitted before it returns."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(task(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class Never(Executor):
    """Its threads have no time for what is submitted."""

    def __init__(self) -> None:
        self.waiting: list[Future[Any]] = []

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        self.waiting.append(Future())
        return self.waiting[-1]


def fill_of(chunk: int, layer: int) -> int:
    """The byte that a slice is filled with."""
    return 1 + chunk * LAYERS + layer


@pytest.fixture
def client() -> Iterator[EngineClient]:
    """A store that holds all chunks."""
    with EngineClient() as client:
        for chunk, key in enumerate(CHAIN):
            fills = [fill_of(chunk, layer) for layer in range(LAYERS)]
            client.keep(LAYOUT, rank_key(key, LAYOUT.layout_id), fills)
        yield client


class Bench:
    """A load into a cache of zeros."""

    def __init__(
        self,
        client: EngineClient,
        *,
        overtaken: bool,
        span_chunks: int = CHUNKS,
        timeout_s: float = 60.0,
        threads: Executor | None = None,
    ) -> None:
        self.store = client.store
        self.cache = {
            f"layer{layer}": torch.zeros(20, BLOCK_TOKENS, TOKEN_BYTES // 4)
            for layer in range(LAYERS)
        }
        blocks = KvBlocks(self.cache, list(self.cache))
        place = LoadPlace(
            client=client,
            layout=LAYOUT,
            filler=BlockFiller(blocks, LAYOUT, block_tokens=BLOCK_TOKENS, dtype=torch.float32),
            turn=EngineTurn(),
            threads=AtOnce() if threads is None else threads,
            span_chunks=span_chunks,
            timeout_s=timeout_s,
        )
        order = LoadOrder(
            load_id=1,
            request_id="a",
            span=BlockSpan(first_block=0, block_ids=BLOCK_IDS, chunk_blocks=CHUNK_BLOCKS),
            chain_keys=CHAIN,
            overtaken=overtaken,
        )
        self.job = LoadJob(order, place)
        self.job.step()

    def run(self) -> None:
        while self.job.step():
            pass

    @property
    def reads(self) -> list[ServedRead]:
        """Those that were asked for."""
        return self.store.reads

    def bring(self, *chunks: int) -> None:
        """Chunks of the first read arrive."""
        for chunk in chunks:
            self.reads[0].deliver(chunk)

    @property
    def filled(self) -> set[int]:
        """Blocks that hold what their chunk's slices held, in all layers."""
        filled = set()
        for place, block_id in enumerate(BLOCK_IDS):
            chunk = place // CHUNK_BLOCKS
            blocks = [cache[block_id].view(torch.uint8) for cache in self.cache.values()]
            if all(
                bool((block == fill_of(chunk, layer)).all()) for layer, block in enumerate(blocks)
            ):
                filled.add(place)
        return filled

    @property
    def written(self) -> bool:
        return any(bool(cache.any()) for cache in self.cache.values())


def test_load_that_is_waited_for_goes_up(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.bring(0, 1, 3)
    bench.run()
    assert bench.filled == {0, 1, 2, 3}
    bench.bring(2, 4, 5)
    assert bench.reads[0].is_finished
    bench.run()
    assert bench.filled == set(range(12))
    assert bench.job.end is not None
    assert bench.job.end.loaded_blocks == 12
    assert bench.job.end.lost_chunks == ()
    assert bench.job.missing_block_ids == []


def test_overtaken_load_goes_down(client: EngineClient) -> None:
    bench = Bench(client, overtaken=True)
    assert bench.job.first_loaded is None
    bench.bring(5, 4, 2)
    bench.run()
    assert bench.job.first_loaded == 4
    assert bench.filled == {8, 9, 10, 11}


def test_claimed_chunk_is_not_written(client: EngineClient) -> None:
    """Computing writes to these blocks in the step that runs."""
    bench = Bench(client, overtaken=True)
    bench.job.claim(4)
    bench.bring(*range(CHUNKS))
    bench.run()
    assert bench.filled == {8, 9, 10, 11}
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == ()
    assert bench.reads[0].pointer == 4


def test_nothing_is_written_after_a_cancel(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.job.cancel()
    bench.bring(*range(CHUNKS))
    bench.run()
    assert not bench.written
    assert bench.job.end is not None


def test_lost_chunk_ends_the_load_and_names_its_blocks(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.bring(0, 1, 3, 4, 5)
    bench.reads[0].finish(SliceState.MISSING)
    bench.run()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (2,)
    assert bench.job.missing_block_ids == list(BLOCK_IDS[4:])


def test_spans_are_read_one_behind_the_other(client: EngineClient) -> None:
    bench = Bench(client, overtaken=True, span_chunks=2)
    bench.run()
    assert len(bench.reads) == 2
    bench.bring(0, 1)
    assert bench.reads[0].is_finished
    bench.run()
    assert bench.job.first_loaded == 4
    assert len(bench.reads) == 3
    assert bench.store.boards_in_use == 2, "the first is closed"


def test_span_ahead_does_not_share_the_devices_with_the_one_that_comes_first(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies further ahead may never be wanted, and delays what is."""
    now = Mock(return_value=100.0)
    monkeypatch.setattr("engine_adapters.vllm.worker_side.load_job.time.monotonic", now)
    bench = Bench(client, overtaken=True, span_chunks=5)
    bench.run()
    bench.bring(4)
    bench.run()
    now.return_value += ASK_AHEAD_S
    bench.bring(3)
    bench.run()
    assert len(bench.reads) == 1
    bench.bring(2)
    bench.run()
    assert len(bench.reads) == 2


def test_span_ahead_is_asked_for_when_the_one_before_ends_soon(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the first of its chunks has been waited for."""
    now = Mock(return_value=100.0)
    monkeypatch.setattr("engine_adapters.vllm.worker_side.load_job.time.monotonic", now)
    bench = Bench(client, overtaken=True, span_chunks=5)
    now.return_value += 1.0
    bench.bring(4)
    bench.run()
    assert len(bench.reads) == 1
    now.return_value += ASK_AHEAD_S / 3
    bench.bring(3)
    bench.run()
    assert len(bench.reads) == 2


def test_spans_that_are_waited_for_keep_the_devices_busy(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, span_chunks=3)
    bench.run()
    assert len(bench.reads) == 2


def test_late_load_is_lost(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, timeout_s=0.0)
    bench.run()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (0,)


def test_full_arena_is_waited_for(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, span_chunks=3)
    bench.store.faults.arena_is_full = True
    bench.bring(0, 1, 2)
    assert bench.reads[0].is_finished
    bench.run()
    assert bench.job.end is None
    assert len(bench.reads) == 1
    bench.store.faults.arena_is_full = False
    bench.run()
    assert len(bench.reads) == 2


def test_lost_daemon_ends_the_load(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False, span_chunks=3)
    bench.bring(0, 1, 2)
    bench.store.kill()
    bench.run()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (3,)


def test_region_is_kept_until_the_daemon_has_let_go(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    read = bench.reads[0]
    bench.job.cancel()
    bench.run()
    assert not bench.job.release()
    assert read.is_cancelled
    assert not bench.job.release()
    assert client.free_bytes < ROOM_BYTES
    read.finish()
    assert bench.job.release()
    assert bench.store.boards_in_use == 0
    assert client.free_bytes == ROOM_BYTES


def test_abandoned_load_ends_once(client: EngineClient) -> None:
    bench = Bench(client, overtaken=False)
    bench.job.abandon()
    end = bench.job.end
    bench.job.abandon()
    assert bench.job.end is end
    assert not bench.job.step()


def test_read_that_ended_threads_never_asked_for_kills_the_loader(client: EngineClient) -> None:
    """Bug: CancelledError ended the loader's thread, and the region was never given back."""
    threads = Never()
    bench = Bench(client, overtaken=False, threads=threads)
    (asked,) = threads.waiting
    assert asked.cancel()
    with pytest.raises(CancelledError):
        bench.job.step()
    bench.job.abandon()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (0,)
    assert bench.job.release()
    assert client.free_bytes == ROOM_BYTES


def test_read_that_nobody_has_asked_for_yet_is_not_asked_for_behind_the_end(
    client: EngineClient,
) -> None:
    threads = Never()
    bench = Bench(client, overtaken=False, threads=threads)
    bench.job.cancel()
    bench.job.step()
    assert bench.job.release()
    assert threads.waiting[0].cancelled()
    assert client.free_bytes == ROOM_BYTES


def test_read_that_ended_threads_do_not_take_holds_nothing(client: EngineClient) -> None:
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    bench = Bench(client, overtaken=False, threads=threads)
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (0,)
    assert bench.job.release()
    assert client.free_bytes == ROOM_BYTES
