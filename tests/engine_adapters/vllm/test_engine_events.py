"""KV events of a real engine, as a router that listens at its endpoint gets them."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.vllm.engine_process import EngineProcess, transfer_config
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

import msgspec
import zmq
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch

pytestmark = pytest.mark.timeout(900)
"""An engine starts before the first test."""

CHUNK_TOKENS, CHUNKS = 64, 5
STORED = CHUNKS * CHUNK_TOKENS
GENERATOR = random.Random(8)
PROMPT = [GENERATOR.randrange(4, 512) for _ in range(STORED + 10)]
CHILD = "tests.engine_adapters.vllm.engine_child"
DECODER = msgspec.msgpack.Decoder(KVEventBatch)


class Router:
    """Subscribes to an engine's events."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.connect(f"tcp://127.0.0.1:{self._port}")
        self._socket.subscribe(b"")

    @property
    def config(self) -> dict[str, object]:
        """What a user names in ``--kv-events-config``."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self._port}",
        }

    def next_events(self) -> list[Any]:
        """Those of the next batch that are ours; fails the test when none comes."""
        while self._socket.poll(PATIENCE_S * 1000):
            *_, payload = self._socket.recv_multipart()
            events = DECODER.decode(payload).events
            if ours := [event for event in events if event.medium == "kvstored"]:
                return ours
        raise AssertionError(f"no event in {PATIENCE_S} s")

    def close(self) -> None:
        self._socket.close(linger=0)


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    router = Router()
    yield router
    router.close()


@pytest.fixture(scope="module")
def engine(
    model: Path,
    shared_daemon: DaemonProcess,
    router: Router,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EngineProcess]:
    with EngineProcess(
        model,
        tmp_path_factory.mktemp("engine") / "engine.log",
        module=CHILD,
        kv_events_config=router.config,
        kv_transfer_config=transfer_config(
            shared_daemon.socket_path, mode="prefix", match_timeout_ms=60_000
        ),
    ) as process:
        yield process


def test_chunks_that_are_stored_are_told_with_their_tokens(
    engine: EngineProcess, router: Router
) -> None:
    engine.generate(PROMPT)
    assert engine.ask("settle")
    engine.generate([4], max_tokens=2)
    stored: list[BlockStored] = []
    while len(stored) < CHUNKS:
        stored += router.next_events()
    assert all(isinstance(event, BlockStored) for event in stored)
    assert [token for event in stored for token in event.token_ids] == PROMPT[:STORED]
    assert {event.block_size for event in stored} == {CHUNK_TOKENS}
    hashes = [block_hash for event in stored for block_hash in event.block_hashes]
    assert [event.parent_block_hash for event in stored] == [None, *hashes[:-1]]


def test_chunk_that_does_not_come_is_told(
    engine: EngineProcess, router: Router, shared_daemon: DaemonProcess
) -> None:
    key = engine.ask("rank_keys", prompt=PROMPT)[2]
    engine.ask("after_match", socket=str(shared_daemon.socket_path), delete=key)
    engine.generate(PROMPT)
    engine.generate([4], max_tokens=2)
    (removed,) = router.next_events()
    assert isinstance(removed, BlockRemoved)
    assert len(removed.block_hashes) == 1
