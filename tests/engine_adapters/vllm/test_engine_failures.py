"""Failures of the store in real engines: the tokens stay, the pool of blocks is whole afterwards.

Every test runs in a mode that waits for its loads, in one that computes meanwhile, and in one that
makes keys and values of what it loads.
"""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_adapters.vllm.settings.support import HIDDEN_WORKER
from engine_adapters.vllm.testing.engine_arguments import transfer_config
from engine_adapters.vllm.testing.engine_process import EngineProcess
from kvstored_client import Client
from tests.engine_adapters.vllm.warm_engine import WarmEngine, assert_pool_is_whole
from tests.support.daemon import DaemonProcess
from tests.support.waiting import wait_until

MODES = ("prefix", "cake", "hcache")
PROMPT_TOKENS = 650
CHUNK_TOKENS = 64
CHUNKS = PROMPT_TOKENS // CHUNK_TOKENS
LOST = CHUNKS - 2
"""Both directions load a chunk before they come to it."""
SPAN_BYTES = 1
"""A read brings one chunk, so that a load takes several."""
LOAD_TIMEOUT_MS = 5000
"""More than any load takes that gets on, and less than a step is held."""
SLOW_BYTES_PER_S = 90_000
"""Of a device: five chunks of 100 KB take longer than that, two of 200 KB do not."""
CHILD = "tests.engine_adapters.vllm.engine_child"
HEADER_BYTES = 4096


def prompts(count: int, seed: int) -> list[list[int]]:
    generator = random.Random(seed)
    return [[generator.randrange(4, 512) for _ in range(PROMPT_TOKENS)] for _ in range(count)]


PROMPTS = prompts(9, seed=3)


@pytest.fixture(scope="module")
def expected(heads_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What an engine without a connector generates."""
    with WarmEngine(heads_model, tmp_path_factory.mktemp("plain") / "engine.log") as engine:
        return [engine.tokens(prompt)[0] for prompt in PROMPTS]


@pytest.fixture(scope="module", params=MODES)
def engine(
    request: pytest.FixtureRequest,
    heads_model: Path,
    shared_daemon: DaemonProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EngineProcess]:
    config = transfer_config(
        shared_daemon.socket_path,
        mode=request.param,
        salt=request.param,
        span_bytes=SPAN_BYTES,
        match_timeout_ms=60_000,
        load_timeout_ms=LOAD_TIMEOUT_MS,
        lease_ms=0,
    )
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    changes: dict[str, object] = {"worker_cls": HIDDEN_WORKER} if request.param == "hcache" else {}
    with WarmEngine(
        heads_model,
        log,
        module=CHILD,
        max_num_batched_tokens=CHUNK_TOKENS,
        kv_transfer_config=config,
        **changes,
    ) as process:
        assert process.ask("reconnect")
        yield process


@pytest.fixture(autouse=True)
def _pool_is_whole(engine: EngineProcess) -> Iterator[None]:
    yield
    assert_pool_is_whole(engine)


def saved(engine: EngineProcess, index: int) -> None:
    """Has the prompt computed and its chunks stored."""
    engine.generate(PROMPTS[index])
    assert engine.ask("settle")


def key_of(engine: EngineProcess, index: int, chunk: int) -> str:
    keys: list[str] = engine.ask("rank_keys", prompt=PROMPTS[index])
    return keys[chunk]


def flip_stored_byte(daemon: DaemonProcess, key: str) -> None:
    """Damages a chunk on its device and empties the daemon's DRAM by a restart."""
    with Client(daemon.socket_path, arena_bytes=1 << 20, strict=True) as client:
        wait_until(lambda: bool(client.admin.list_chunks(key).chunks))
        (chunk,) = client.admin.list_chunks(key).chunks
    assert daemon.terminate() == 0
    with daemon.devices[chunk.device_index].open("r+b", buffering=0) as file:
        place = chunk.offset + HEADER_BYTES + 1000
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    daemon.start()


def limit(daemon: DaemonProcess, bytes_per_s: int | None) -> None:
    """Restarts the daemon with devices of another rate.

    Those that are slow do one transfer after the other: of several at once any may come first,
    and the first chunk would be late with most of the others.
    """
    assert daemon.terminate() == 0
    limits = {"device_bytes_per_s_max": bytes_per_s, "depth_per_device": 1} if bytes_per_s else {}
    daemon.configure({"io": limits})
    daemon.start()


def quarantined(daemon: DaemonProcess) -> int:
    with Client(daemon.socket_path, arena_bytes=1 << 20, strict=True) as client:
        return dict(client.admin.stats().counters).get("quarantined_chunks", 0)


def test_flipped_byte_is_not_used(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    saved(engine, 0)
    flip_stored_byte(shared_daemon, key_of(engine, 0, LOST))
    assert engine.ask("reconnect")
    before = engine.counted("failed_loads")
    engine.ask("until_load_ends")
    assert engine.tokens(PROMPTS[0]) == [expected[0]]
    assert quarantined(shared_daemon) == 1
    assert engine.counted("failed_loads") == before + 1


def test_what_was_damaged_is_stored_anew(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    assert engine.ask("settle")
    before = engine.counted("failed_loads"), quarantined(shared_daemon)
    engine.ask("until_load_ends")
    assert engine.tokens(PROMPTS[0]) == [expected[0]]
    assert (engine.counted("failed_loads"), quarantined(shared_daemon)) == before


def test_chunk_is_evicted_between_match_and_load(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    saved(engine, 1)
    before = engine.counted("failed_loads")
    key = key_of(engine, 1, LOST)
    engine.ask("after_match", socket=str(shared_daemon.socket_path), delete=key)
    engine.ask("until_load_ends")
    assert engine.tokens(PROMPTS[1]) == [expected[1]]
    assert engine.counted("failed_loads") == before + 1


def test_full_arena_ends_at_the_deadline(engine: EngineProcess, expected: list[list[int]]) -> None:
    saved(engine, 2)
    engine.ask("fill_arena")
    before = engine.counted("failed_loads"), engine.counted("dropped_saves")
    engine.ask("until_load_ends")
    try:
        assert engine.tokens(PROMPTS[2]) == [expected[2]]
        assert engine.tokens(PROMPTS[8]) == [expected[8]]
    finally:
        engine.ask("free_arena")
    assert engine.counted("failed_loads") == before[0] + 1
    assert engine.counted("dropped_saves") > before[1]


def test_load_that_stands_still_ends_at_the_deadline(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    saved(engine, 3)
    free_bytes = engine.ask("arena_free_bytes")
    before = engine.counted("failed_loads")
    engine.ask("in_load", pid=shared_daemon.pid, name="SIGSTOP")
    try:
        engine.ask("until_load_ends")
        assert engine.tokens(PROMPTS[3]) == [expected[3]]
    finally:
        os.kill(shared_daemon.pid, signal.SIGCONT)
    assert engine.counted("failed_loads") == before + 1
    # Where the daemon may still write nothing else is put; it is given back when it answers.
    assert engine.ask("arena_free_bytes") == free_bytes


def test_load_that_is_too_slow_ends_at_the_deadline(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    """What came in time is used; chunks keep coming all the while."""
    saved(engine, 3)
    limit(shared_daemon, SLOW_BYTES_PER_S)
    assert engine.ask("reconnect")
    before = engine.ask("metrics")
    engine.ask("until_load_ends")
    try:
        assert engine.tokens(PROMPTS[3]) == [expected[3]]
    finally:
        limit(shared_daemon, None)
        assert engine.ask("reconnect")
    after = engine.ask("metrics")
    for name in ("failed_loads", "load_bytes"):
        assert after[f"vllm:kvstored_{name}"] > before[f"vllm:kvstored_{name}"]


def test_request_finishes_while_it_is_loaded(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    """In mode prefix it waits for the deadline; in mode cake its load outlives it."""
    saved(engine, 4)
    free_bytes = engine.ask("arena_free_bytes")
    engine.ask("in_load", pid=shared_daemon.pid, name="SIGSTOP")
    try:
        assert engine.tokens(PROMPTS[4]) == [expected[4]]
        blocks = engine.ask("blocks")
        assert blocks["free"] == blocks["all"]
    finally:
        os.kill(shared_daemon.pid, signal.SIGCONT)
    # Its blocks belong to others now: a late copy would change their tokens.
    assert engine.tokens(PROMPTS[5]) == [expected[5]]
    assert engine.ask("arena_free_bytes") == free_bytes


def test_request_is_aborted_while_it_is_loaded(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    assert engine.ask("settle")
    free_bytes = engine.ask("arena_free_bytes")
    engine.ask("in_load", pid=shared_daemon.pid, name="SIGSTOP")
    try:
        assert engine.ask("abort_in_load", prompt=PROMPTS[5])
    finally:
        os.kill(shared_daemon.pid, signal.SIGCONT)
    assert engine.tokens(PROMPTS[6]) == [expected[6]]
    assert engine.ask("arena_free_bytes") == free_bytes


def test_daemon_is_killed_during_a_load_and_comes_back(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    saved(engine, 7)
    before = engine.counted("failed_loads")
    engine.ask("in_load", pid=shared_daemon.pid, name="SIGKILL")
    engine.ask("until_load_ends")
    assert engine.tokens(PROMPTS[7]) == [expected[7]]
    assert engine.counted("failed_loads") == before + 1
    shared_daemon.restart()
    assert engine.ask("reconnect")
    saved(engine, 8)
    loads = engine.counted("loads")
    assert engine.tokens(PROMPTS[8]) == [expected[8]]
    assert engine.counted("loads") == loads + 1


def test_engine_starts_without_a_daemon(
    heads_model: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    with DaemonProcess(tmp_path) as daemon:
        daemon.kill()
        config = transfer_config(daemon.socket_path, mode="prefix", match_timeout_ms=60_000)
        with WarmEngine(heads_model, tmp_path / "engine.log", kv_transfer_config=config) as engine:
            assert engine.tokens(PROMPTS[0]) == [expected[0]]
            assert engine.counted("dropped_saves") >= CHUNKS
            daemon.start()
            assert engine.ask("reconnect")
            saved(engine, 0)
            assert engine.tokens(PROMPTS[0]) == [expected[0]]
            assert engine.counted("restored_tokens") == CHUNKS * CHUNK_TOKENS
