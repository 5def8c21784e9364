"""One load against a scripted store: order, meeting, failures, and what it gives back."""

from typing import Any, cast
from unittest.mock import Mock

import pytest
import torch

from engine_adapters.vllm.block_filler import BlockFiller
from engine_adapters.vllm.block_span import BlockSpan
from engine_adapters.vllm.chunk_keys import rank_key
from engine_adapters.vllm.engine_turn import EngineTurn
from engine_adapters.vllm.kv_blocks import KvBlocks
from engine_adapters.vllm.load_job import ASK_AHEAD_S, LoadJob, LoadPlace
from engine_adapters.vllm.orders import LoadOrder
from kvstored_client import LayerState, StateKind, StateLayout
from tests.engine_adapters.vllm.scripted_store import ARENA_BYTES, AtOnce, ScriptedClient

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


class Bench:
    """A load into a cache of zeros."""

    def __init__(
        self, *, overtaken: bool, span_chunks: int = CHUNKS, timeout_s: float = 60.0
    ) -> None:
        self.client = ScriptedClient()
        self.cache = {
            f"layer{layer}": torch.zeros(20, BLOCK_TOKENS, TOKEN_BYTES // 4)
            for layer in range(LAYERS)
        }
        blocks = KvBlocks(self.cache, list(self.cache))
        place = LoadPlace(
            client=cast("Any", self.client),
            layout=LAYOUT,
            filler=BlockFiller(blocks, LAYOUT, block_tokens=BLOCK_TOKENS, dtype=torch.float32),
            turn=EngineTurn(),
            threads=AtOnce(),
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
    def filled(self) -> set[int]:
        """Blocks that hold what their chunk's slices held, in all layers."""
        filled = set()
        for place, block_id in enumerate(BLOCK_IDS):
            key = rank_key(CHAIN[place // CHUNK_BLOCKS], LAYOUT.layout_id)[0]
            blocks = [cache[block_id].view(torch.uint8) for cache in self.cache.values()]
            if all(
                bool((block == (key + layer) % 256).all()) for layer, block in enumerate(blocks)
            ):
                filled.add(place)
        return filled

    @property
    def written(self) -> bool:
        return any(bool(cache.any()) for cache in self.cache.values())


def test_load_that_is_waited_for_goes_up() -> None:
    bench = Bench(overtaken=False)
    bench.client.reads[0].bring(0, 1, 3)
    bench.run()
    assert bench.filled == {0, 1, 2, 3}
    bench.client.reads[0].bring(2, 4, 5)
    bench.client.reads[0].end()
    bench.run()
    assert bench.filled == set(range(12))
    assert bench.job.end is not None
    assert bench.job.end.loaded_blocks == 12
    assert bench.job.end.lost_chunks == ()
    assert bench.job.missing_block_ids == []


def test_overtaken_load_goes_down() -> None:
    bench = Bench(overtaken=True)
    assert bench.job.first_loaded is None
    bench.client.reads[0].bring(5, 4, 2)
    bench.run()
    assert bench.job.first_loaded == 4
    assert bench.filled == {8, 9, 10, 11}


def test_claimed_chunk_is_not_written() -> None:
    """Computing writes to these blocks in the step that runs."""
    bench = Bench(overtaken=True)
    bench.job.claim(4)
    bench.client.reads[0].bring(*range(CHUNKS))
    bench.run()
    assert bench.filled == {8, 9, 10, 11}
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == ()
    assert bench.client.reads[0].pointer == 4


def test_nothing_is_written_after_a_cancel() -> None:
    bench = Bench(overtaken=False)
    bench.job.cancel()
    bench.client.reads[0].bring(*range(CHUNKS))
    bench.run()
    assert not bench.written
    assert bench.job.end is not None


def test_lost_chunk_ends_the_load_and_names_its_blocks() -> None:
    bench = Bench(overtaken=False)
    bench.client.reads[0].bring(0, 1, 3, 4, 5)
    bench.client.reads[0].end()
    bench.run()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (2,)
    assert bench.job.missing_block_ids == list(BLOCK_IDS[4:])


def test_spans_are_read_one_behind_the_other() -> None:
    bench = Bench(overtaken=True, span_chunks=2)
    bench.run()
    assert len(bench.client.reads) == 2
    bench.client.reads[0].bring(0, 1)
    bench.client.reads[0].end()
    bench.run()
    assert bench.job.first_loaded == 4
    assert len(bench.client.reads) == 3
    assert bench.client.reads[0].is_closed


def test_span_ahead_does_not_share_the_devices_with_the_one_that_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What lies further ahead may never be wanted, and delays what is."""
    now = Mock(return_value=100.0)
    monkeypatch.setattr("engine_adapters.vllm.load_job.time.monotonic", now)
    bench = Bench(overtaken=True, span_chunks=5)
    bench.run()
    bench.client.reads[0].bring(4)
    bench.run()
    now.return_value += ASK_AHEAD_S
    bench.client.reads[0].bring(3)
    bench.run()
    assert len(bench.client.reads) == 1
    bench.client.reads[0].bring(2)
    bench.run()
    assert len(bench.client.reads) == 2


def test_span_ahead_is_asked_for_when_the_one_before_ends_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the first of its chunks has been waited for."""
    now = Mock(return_value=100.0)
    monkeypatch.setattr("engine_adapters.vllm.load_job.time.monotonic", now)
    bench = Bench(overtaken=True, span_chunks=5)
    now.return_value += 1.0
    bench.client.reads[0].bring(4)
    bench.run()
    assert len(bench.client.reads) == 1
    now.return_value += ASK_AHEAD_S / 3
    bench.client.reads[0].bring(3)
    bench.run()
    assert len(bench.client.reads) == 2


def test_spans_that_are_waited_for_keep_the_devices_busy() -> None:
    bench = Bench(overtaken=False, span_chunks=3)
    bench.run()
    assert len(bench.client.reads) == 2


def test_late_load_is_lost() -> None:
    bench = Bench(overtaken=False, timeout_s=0.0)
    bench.run()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (0,)


def test_full_arena_is_waited_for() -> None:
    bench = Bench(overtaken=False, span_chunks=3)
    bench.client.is_full = True
    bench.client.reads[0].bring(0, 1, 2)
    bench.client.reads[0].end()
    bench.run()
    assert bench.job.end is None
    bench.client.is_full = False
    bench.run()
    assert len(bench.client.reads) == 2


def test_lost_daemon_ends_the_load() -> None:
    bench = Bench(overtaken=False, span_chunks=3)
    bench.client.is_full, bench.client.epoch = True, 0
    bench.client.reads[0].bring(0, 1, 2)
    bench.client.reads[0].end()
    bench.run()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (3,)


def test_region_is_kept_until_the_daemon_has_let_go() -> None:
    bench = Bench(overtaken=False)
    read = bench.client.reads[0]
    bench.job.cancel()
    bench.run()
    assert not bench.job.release()
    assert read.is_cancelled
    assert bench.job.release()
    assert read.is_closed
    assert bench.client.free_bytes == ARENA_BYTES


def test_abandoned_load_ends_once() -> None:
    bench = Bench(overtaken=False)
    bench.job.abandon()
    end = bench.job.end
    bench.job.abandon()
    assert bench.job.end is end
    assert not bench.job.step()
