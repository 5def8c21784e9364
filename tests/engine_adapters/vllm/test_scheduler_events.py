"""What vLLM's real scheduler has the connector tell routers, with a real daemon."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.daemon import DaemonProcess

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from engine_adapters.vllm.messages.orders import SaveOrder
from kvstored_client import Client
from tests.engine_adapters.vllm.scheduler_bench import BLOCK_TOKENS, CHUNK_TOKENS, SchedulerBench
from tests.engine_adapters.vllm.stored_prefix import store_prefix, store_save
from tests.support.waiting import wait_until

CHUNKS = 3
STORED = CHUNKS * CHUNK_TOKENS
PROMPT = STORED + 10
BLOCKS = STORED // BLOCK_TOKENS
CHUNK_BLOCKS = CHUNK_TOKENS // BLOCK_TOKENS

Start = Callable[..., SchedulerBench]


@pytest.fixture
def start(model: Path, shared_daemon: DaemonProcess) -> Iterator[Start]:
    benches: list[SchedulerBench] = []

    def make(**options: Any) -> SchedulerBench:
        bench = SchedulerBench(
            model,
            shared_daemon.socket_path,
            scheduler=Scheduler,
            **{"has_events": True, **options},
        )
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()


class Told:
    """What a connector has told so far; looks until it has told enough."""

    def __init__(self, bench: SchedulerBench) -> None:
        self._bench = bench
        self.stored: list[BlockStored] = []
        self.removed: list[BlockRemoved] = []

    def look(self) -> None:
        for event in self._bench.scheduler.connector.take_events():
            events: list[Any] = self.stored if isinstance(event, BlockStored) else self.removed
            events.append(event)

    def wait(self, *, stored: int = 0, removed: int = 0) -> None:
        def has_come() -> bool:
            self.look()
            return len(self.stored) >= stored and len(self.removed) >= removed

        wait_until(has_come)

    @property
    def hashes(self) -> list[int | bytes]:
        return [block_hash for event in self.stored for block_hash in event.block_hashes]


def hashes_of(request: Request) -> list[int | bytes]:
    return [maybe_convert_block_hash(each) for each in request.block_hashes]


def saves_of(bench: SchedulerBench, request_id: str = "a", **options: Any) -> list[SaveOrder]:
    """All saves of a new request of PROMPT tokens."""
    bench.add(request_id, PROMPT, **options)
    saves: list[SaveOrder] = []
    while sum(len(save.chain_keys) for save in saves) < CHUNKS:
        saves += bench.step().saves
        bench.answer()
    return saves


def store(bench: SchedulerBench, daemon: DaemonProcess, saves: list[SaveOrder]) -> list[bytes]:
    return [
        key
        for save in saves
        for key in store_save(daemon.socket_path, bench.side.lookup, save, salt=bench.salt)
    ]


def followed(bench: SchedulerBench) -> Told:
    """What a connector tells, whose follower has its place in the store's changes."""
    follower = bench.side.telling.follower
    assert follower is not None
    wait_until(lambda: follower._place != (0, 0))
    return Told(bench)


def test_stored_chunks_are_told_as_vllms_own_blocks(
    start: Start, shared_daemon: DaemonProcess
) -> None:
    """Bug: hashes were bytes of ours, of 64 tokens, in a place that no router knows."""
    bench = start()
    told = followed(bench)
    saves = saves_of(bench)
    request = bench.scheduler.requests["a"]
    assert not told.stored, "nothing is told before it is stored"
    store(bench, shared_daemon, saves)
    told.wait(stored=CHUNKS)
    hashes = hashes_of(request)[:BLOCKS]
    assert all(isinstance(each, int) for each in hashes)
    assert told.hashes == hashes
    assert [event.parent_block_hash for event in told.stored] == [
        None,
        *hashes[CHUNK_BLOCKS - 1 : -1 : CHUNK_BLOCKS],
    ]
    tokens = [token for event in told.stored for token in event.token_ids]
    assert tokens == list(request.all_token_ids[:STORED])
    for event in told.stored:
        assert (event.block_size, event.medium) == (BLOCK_TOKENS, "STORAGE")
        assert event.lora_name is None
        # Older versions have not all of these.
        assert getattr(event, "locality", "LOCAL") == "LOCAL"
        assert getattr(event, "group_idx", 0) == 0
        assert getattr(event, "kv_cache_spec_kind", "full_attention") == "full_attention"
        assert getattr(event, "ownership", None) is None


def test_every_engine_that_can_use_them_tells_what_one_has_stored(
    start: Start, shared_daemon: DaemonProcess
) -> None:
    """Bug: each told of its own chunks only, and routers sent requests for them nowhere else."""
    bench = start()
    other, stranger = followed(start(salt=bench.salt)), followed(start())
    keys = store(bench, shared_daemon, saves_of(bench))
    other.wait(stored=CHUNKS)
    assert other.hashes == hashes_of(bench.scheduler.requests["a"])[:BLOCKS]
    with Client(shared_daemon.socket_path, strict=True, arena_bytes=1 << 20) as client:
        client.delete(keys[1:2])
    other.wait(removed=1)
    stranger.look()
    assert stranger.stored == stranger.removed == [], "it has another salt"


def test_evicted_chunk_is_taken_back(start: Start, shared_daemon: DaemonProcess) -> None:
    """Bug: what the daemon evicted stayed told until a load of it failed."""
    bench = start()
    told = followed(bench)
    keys = store(bench, shared_daemon, saves_of(bench))
    told.wait(stored=CHUNKS)
    with Client(shared_daemon.socket_path, strict=True, arena_bytes=1 << 20) as client:
        client.delete(keys[1:2])
    told.wait(removed=1)
    (event,) = told.removed
    assert event.block_hashes == told.stored[1].block_hashes
    assert event.medium == "STORAGE"


def test_chunks_that_a_look_up_finds_are_told(start: Start, shared_daemon: DaemonProcess) -> None:
    """As after a restart of the engine, when nobody says any more what was stored."""
    bench = start()
    told = followed(bench)
    tokens = [index % 500 for index in range(STORED)]
    store_prefix(shared_daemon.socket_path, bench.side.lookup, tokens, salt=bench.salt)
    request = bench.add("a", PROMPT)
    load = bench.step_until_load()
    told.wait(stored=CHUNKS)
    assert told.hashes == hashes_of(request)[:BLOCKS]
    bench.answer(bench.ended(load), finished=("a",))
    bench.run()


def test_chunk_is_told_when_all_ranks_have_stored_it(
    start: Start, shared_daemon: DaemonProcess
) -> None:
    bench = start(tensor_size=2)
    told = followed(bench)
    keys = store(bench, shared_daemon, saves_of(bench))
    assert len(keys) == 2 * CHUNKS
    told.wait(stored=CHUNKS)
    assert len(told.hashes) == BLOCKS


def test_chunks_of_an_adapter_are_told_with_its_name(
    start: Start, shared_daemon: DaemonProcess
) -> None:
    """Bug: chunks of a LoRA adapter were announced as those of the model alone."""
    bench = start()
    told = followed(bench)
    bench.add("a", PROMPT).lora_request = SimpleNamespace(lora_name="pirate", lora_int_id=1)
    saves: list[SaveOrder] = []
    while sum(len(save.chain_keys) for save in saves) < CHUNKS:
        saves += bench.step().saves
        bench.answer()
    store(bench, shared_daemon, saves)
    told.wait(stored=CHUNKS)
    assert {event.lora_name for event in told.stored} == {"pirate"}


def test_chunks_of_a_salted_request_are_not_told(start: Start) -> None:
    """A router knows a chunk by its tokens, and this one helps no request without the salt."""
    assert {save.notes for save in saves_of(start(), cache_salt="mine")} == {()}


def test_nothing_is_told_behind_a_reset(start: Start, shared_daemon: DaemonProcess) -> None:
    """What was stored helps nobody any more who asks this engine."""
    bench = start()
    told = followed(bench)
    store(bench, shared_daemon, saves_of(bench))
    told.wait(stored=CHUNKS)
    bench.scheduler.reset_connector_cache()
    told.wait(removed=1)
    removed = [block_hash for event in told.removed for block_hash in event.block_hashes]
    assert removed == told.hashes
    bench.run()
    assert {save.notes for save in saves_of(bench, "b")} == {()}


def test_engine_that_publishes_nothing_asks_nothing(start: Start) -> None:
    bench = start(has_events=False)
    assert bench.side.telling.follower is None
    assert list(bench.scheduler.connector.take_events()) == []


def test_chunks_of_an_engine_that_publishes_nothing_are_told_by_the_others(
    start: Start, shared_daemon: DaemonProcess
) -> None:
    """Bug: such an engine put no notes, so nobody of the node told of its chunks."""
    bench = start(has_events=False, prefix_caching=True)
    other = followed(start(salt=bench.salt))
    store(bench, shared_daemon, saves_of(bench))
    other.wait(stored=CHUNKS)
    assert other.hashes == hashes_of(bench.scheduler.requests["a"])[:BLOCKS]
