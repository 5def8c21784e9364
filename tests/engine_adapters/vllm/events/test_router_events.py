"""Events as vLLM encodes them, and what Dynamo's real indexer makes of them."""

import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

import msgspec
import zmq
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent, KVEventBatch
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from engine_adapters.vllm.events import router_events
from engine_adapters.vllm.events.router_events import RouterEvents, are_published, hashing_of
from engine_adapters.vllm.messages.chunk_events import RemovedBlocks, StoredBlocks
from tests.engine_adapters.vllm.dynamo_indexer import HAS_DYNAMO, DynamoIndexer
from tests.support.waiting import wait_until

BLOCK_TOKENS = 4
TOKENS = tuple(range(100, 120))
HASHES = tuple(bytes([number]) * 32 for number in range(1, 6))
EVENTS = RouterEvents(BLOCK_TOKENS, lambda: ("full_attention", None))
WORKER = 1
needs_dynamo = pytest.mark.skipif(not HAS_DYNAMO, reason="needs the wheel ai-dynamo-runtime")


def stored(first: int, stop: int) -> KVCacheEvent:
    """Ours, of some blocks of TOKENS."""
    return EVENTS.of(
        StoredBlocks(
            block_hashes=HASHES[first:stop],
            parent_hash=HASHES[first - 1] if first else b"",
            token_ids=TOKENS[first * BLOCK_TOKENS : stop * BLOCK_TOKENS],
        )
    )


def removed(first: int, stop: int) -> KVCacheEvent:
    return EVENTS.of(RemovedBlocks(HASHES[first:stop]))


def on_gpu(stop: int) -> KVCacheEvent:
    """VLLM's own, of the first blocks of TOKENS."""
    return BlockStored(
        block_hashes=[maybe_convert_block_hash(each) for each in HASHES[:stop]],
        parent_block_hash=None,
        token_ids=list(TOKENS[: stop * BLOCK_TOKENS]),
        block_size=BLOCK_TOKENS,
        lora_id=None,
        medium="GPU",
        lora_name=None,
    )


class Worker:
    """Publishes events to an indexer as vLLM's publisher does."""

    def __init__(self, indexer: DynamoIndexer) -> None:
        self._indexer = indexer
        self._numbers = itertools.count()
        self._socket = zmq.Context.instance().socket(zmq.PUB)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        indexer.register(WORKER, port=port, block_tokens=BLOCK_TOKENS)
        self._beacons = itertools.count(1000, BLOCK_TOKENS)
        self.settle()

    def publish(self, *events: KVCacheEvent) -> None:
        """One batch; has arrived when this returns."""
        self._send(*events)
        self.settle()

    def settle(self) -> None:
        """Publishes something else on each medium until the indexer has heard of both.

        It takes in what is on disks after what is on GPUs.
        """
        for event in (on_gpu(1), stored(0, 1)):
            wait_until(partial(self._is_heard, event))

    def _is_heard(self, event: Any) -> bool:
        tokens = list(range(first := next(self._beacons), first + BLOCK_TOKENS))
        self._send(msgspec.structs.replace(event, block_hashes=[first], token_ids=tokens))
        time.sleep(0.05)
        return any(self._indexer.matches(WORKER, tokens).values())

    @property
    def matches(self) -> dict[str, Any]:
        return self._indexer.matches(WORKER, TOKENS)

    def close(self) -> None:
        self._socket.close(linger=0)

    def _send(self, *events: KVCacheEvent) -> None:
        batch = KVEventBatch(ts=time.time(), events=list(events))
        number = next(self._numbers).to_bytes(8, "big")
        self._socket.send_multipart([b"", number, msgspec.msgpack.encode(batch)])


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with DynamoIndexer(tmp_path / "indexer.log") as indexer:
        worker = Worker(indexer)
        yield worker
        worker.close()


@needs_dynamo
def test_dynamo_finds_blocks_that_are_stored(worker: Worker) -> None:
    worker.publish(stored(0, 2))
    worker.publish(stored(2, 4))
    assert worker.matches["disk"] == 4 * BLOCK_TOKENS
    assert worker.matches["gpu"] == 0


@needs_dynamo
def test_dynamo_finds_them_behind_blocks_of_the_gpu(worker: Worker) -> None:
    worker.publish(on_gpu(2), stored(0, 2), stored(2, 5))
    assert worker.matches["gpu"] == 2 * BLOCK_TOKENS
    assert worker.matches["disk"] == 5 * BLOCK_TOKENS


@needs_dynamo
def test_dynamo_loses_blocks_that_are_evicted_and_keeps_those_of_the_gpu(worker: Worker) -> None:
    worker.publish(on_gpu(2), stored(0, 2), stored(2, 5))
    worker.publish(removed(2, 5), removed(0, 2))
    assert worker.matches["gpu"] == 2 * BLOCK_TOKENS
    assert worker.matches["disk"] == 2 * BLOCK_TOKENS, "it counts what the GPU has"
    worker.publish(
        BlockRemoved(
            block_hashes=[maybe_convert_block_hash(each) for each in HASHES[:2]], medium="GPU"
        )
    )
    assert not worker.matches


@needs_dynamo
def test_dynamo_has_them_again_when_they_are_stored_anew(worker: Worker) -> None:
    worker.publish(stored(0, 2), stored(2, 4))
    worker.publish(removed(0, 2))
    assert not worker.matches
    worker.publish(stored(0, 2))
    assert worker.matches["disk"] == 4 * BLOCK_TOKENS


@needs_dynamo
def test_dynamo_drops_the_whole_batch_for_hashes_that_are_bytes(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: ours were, and vLLM's own events were lost with them. Shows that this bench sees it."""
    monkeypatch.setattr(kv_cache_utils, "maybe_convert_block_hash", lambda each: each)
    worker.publish(on_gpu(2), stored(2, 4))
    assert not worker.matches


def test_fields_that_this_vllm_does_not_have_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = msgspec.defstruct("Older", [("block_hashes", list), ("medium", str)])
    monkeypatch.setattr(router_events, "BlockRemoved", older)
    event: Any = removed(0, 1)
    assert isinstance(event, older)
    assert event.medium == "STORAGE"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, False),
        (SimpleNamespace(enable_kv_cache_events=False), False),
        (SimpleNamespace(enable_kv_cache_events=True), True),
    ],
)
def test_events_are_published_where_vllm_is_told_to(config: Any, expected: bool) -> None:
    assert are_published(SimpleNamespace(kv_events_config=config)) is expected


def test_hashing_is_unknown_until_vllm_has_chosen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(cache_config=SimpleNamespace(prefix_caching_hash_algo="sha256"))
    monkeypatch.delattr(kv_cache_utils, "NONE_HASH", raising=False)
    assert hashing_of(config) == b""
    monkeypatch.setattr(kv_cache_utils, "NONE_HASH", b"seed", raising=False)
    assert hashing_of(config) == b"sha256 seed"
