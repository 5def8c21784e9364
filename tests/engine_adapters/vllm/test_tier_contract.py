"""The contract of vLLM's tiers, kept by its own ``fs`` tier and by ours."""

import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvstored_client import Client
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S, POLL_S, wait_until

pytest.importorskip("vllm", minversion="0.31", reason="needs vLLM 0.31: make test-vllm")

from vllm.v1.kv_offload.base import (
    LookupResult,
    OffloadingKVEventsConfig,
    ReqContext,
    ScheduleEndContext,
    make_offload_key,
)
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.base import JobResult, TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

CHUNK_BYTES = 3 * 4096
CHUNKS = 12
STEPS_MAX = int(PATIENCE_S / POLL_S)
REQUEST = ReqContext(req_id="a")


def offloading_spec(model: Path) -> Any:
    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=32, layer_names=("layers.0",), group_id=0),),
        worker_kv_bytes_per_block=CHUNK_BYTES,
        enable_kv_cache_events=True,
        extra_config={},
        engine_id="engine",
        model=OffloadingModelConfig(name=str(model), dtype="float32"),
        cache=OffloadingCacheConfig(tokens_per_hash=32, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0,
            world_size=1,
            tp_size=1,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=False,
        ),
    )
    events = OffloadingKVEventsConfig(enable_kv_cache_events=True, self_describing_kv_events=False)
    return SimpleNamespace(config=config, blocks_per_chunk=1, kv_events_config=events)


class TierBench:
    """A tier behind a host tier of CHUNKS chunks; a test plays vLLM's manager."""

    def __init__(self, model: Path, tier_config: dict[str, Any]) -> None:
        # Aligned, as vLLM's own: the files are read around the page cache.
        memory = mmap.mmap(-1, CHUNKS * CHUNK_BYTES)
        self.host = np.frombuffer(memory, np.uint8).reshape(CHUNKS, CHUNK_BYTES)
        self.tier = SecondaryTierFactory.create_secondary_tier(
            {"enable_kv_events": True, **tier_config}, self.host.data, offloading_spec(model)
        )
        if getattr(self.tier, "_store", None) is not None:
            # No look-up is slow, however busy the machine is: after one all are misses for a while.
            self.tier._store._clock = lambda: 0.0
        self._next_job = 0

    def job(self, keys: list[bytes], chunk_ids: list[int], *, is_load: bool) -> TransferJob:
        self._next_job += 1
        return TransferJob(
            job_id=self._next_job,
            keys=keys,
            chunk_ids=np.array(chunk_ids),
            is_promotion=is_load,
            req_context=REQUEST,
        )

    def store(self, keys: list[bytes], chunk_ids: list[int]) -> JobResult:
        job = self.job(keys, chunk_ids, is_load=False)
        self.tier.submit_store(job)
        return self.finished(job)

    def load(self, keys: list[bytes], chunk_ids: list[int]) -> JobResult:
        job = self.job(keys, chunk_ids, is_load=True)
        self.tier.submit_load(job)
        return self.finished(job)

    def event(self) -> Any:
        """The next event, when it comes; it must come alone."""
        for _ in range(STEPS_MAX):
            # Some tiers forget what they have told only when all of it was taken.
            events = list(self.tier.take_events())
            if events:
                (event,) = events
                return event
            time.sleep(POLL_S)
        raise AssertionError("nothing is told")

    def finished(self, job: TransferJob) -> JobResult:
        for _ in range(STEPS_MAX):
            for result in self.tier.get_finished_jobs():
                assert result.job_id == job.job_id
                return result
            time.sleep(POLL_S)
        raise AssertionError("the job does not end")

    def lookup(self, *keys: bytes, request: ReqContext = REQUEST) -> list[LookupResult]:
        for _ in range(STEPS_MAX):
            found = [self.tier.lookup(key, request) for key in keys]
            if LookupResult.RETRY not in found:
                return found
            self.tier.on_schedule_end(ScheduleEndContext(new_req_ids=[], preempted_req_ids=[]))
            time.sleep(POLL_S)
        raise AssertionError("the look-up does not end")


Start = Callable[[], TierBench]


@pytest.fixture(params=["fs", "kvstored"])
def start(
    request: pytest.FixtureRequest, model: Path, shared_daemon: DaemonProcess, tmp_path: Path
) -> Iterator[Start]:
    if request.param == "fs":
        tier_config = {"type": "fs", "root_dir": str(tmp_path)}
    else:
        tier_config = ours(shared_daemon, salt=str(tmp_path))
    benches: list[TierBench] = []

    def make() -> TierBench:
        benches.append(TierBench(model, tier_config))
        return benches[-1]

    yield make
    for bench in benches:
        bench.tier.shutdown()


def ours(daemon: DaemonProcess, **options: Any) -> dict[str, Any]:
    return {
        "type": "KvstoredTier",
        "module_path": "engine_adapters.vllm.tier",
        "socket": str(daemon.socket_path),
        "arena_bytes": "2MiB",
        "timeout_ms": int(PATIENCE_S * 1000),
        **options,
    }


def keys(count: int) -> list[bytes]:
    return [make_offload_key(bytes([number]) * 32, 0) for number in range(count)]


def filled(bench: TierBench, count: int) -> None:
    for number in range(count):
        bench.host[number] = number + 1


def test_second_engine_loads_what_the_first_stored(start: Start) -> None:
    first = start()
    filled(first, 4)
    assert first.store(keys(4), [0, 1, 2, 3]).success
    second = start()
    assert second.lookup(*keys(5)) == [LookupResult.HIT] * 4 + [LookupResult.MISS]
    result = second.load(keys(4), [7, 3, 9, 5])
    assert result.success
    assert [int(second.host[chunk, -1]) for chunk in (7, 3, 9, 5)] == [1, 2, 3, 4]
    assert not second.host[[0, 1, 2, 4, 6, 8]].any()


def test_what_is_stored_already_is_stored_again_without_harm(start: Start) -> None:
    bench = start()
    filled(bench, 2)
    assert bench.store(keys(2), [0, 1]).success
    assert bench.store(keys(2), [0, 1]).success


def test_what_was_loaded_before_a_loss_is_kept(start: Start) -> None:
    """vLLM promotes it, computes the rest and does not try again."""
    bench = start()
    filled(bench, 3)
    assert bench.store(keys(3), [0, 1, 2]).success
    bench.lookup(*keys(5))
    result = bench.load(keys(5), [5, 6, 7, 8, 9])
    assert not result.success
    assert tuple(result.successful_keys or ()) == tuple(keys(3))
    assert [int(bench.host[chunk, 0]) for chunk in (5, 6, 7)] == [1, 2, 3]
    assert bench.lookup(*keys(5))[3:] == [LookupResult.MISS, LookupResult.MISS]


def test_drained_jobs_are_told(start: Start) -> None:
    bench = start()
    filled(bench, 4)
    jobs = [bench.job([key], [number], is_load=False) for number, key in enumerate(keys(4))]
    for job in jobs:
        bench.tier.submit_store(job)
    bench.tier.drain_jobs()
    results = list(bench.tier.get_finished_jobs())
    assert {result.job_id for result in results} == {job.job_id for job in jobs}
    assert all(result.success for result in results)


def test_stored_chunks_are_told_as_events(start: Start) -> None:
    bench = start()
    bench.store(keys(2), [0, 1])
    event = bench.event()
    assert list(event.keys) == keys(2)
    assert not event.removed
    assert list(bench.tier.take_events()) == []


def test_chunks_that_were_evicted_stayed_told_for_ever(
    model: Path, shared_daemon: DaemonProcess
) -> None:
    """Bug: routers heard of what was stored, and never that it is gone."""
    bench = TierBench(model, ours(shared_daemon, salt="gone"))
    bench.store(keys(2), [0, 1])
    assert not bench.event().removed
    with Client(shared_daemon.socket_path, arena_bytes=1 << 20, salt="gone") as client:
        assert client.delete(bench.tier._store._keys(keys(1))) == 1
    event = bench.event()
    assert event.removed
    assert list(event.keys) == keys(1)
    assert getattr(event, "removal_expected", True)
    bench.tier.shutdown()


def test_nothing_waits_for_a_hung_daemon(model: Path, shared_daemon: DaemonProcess) -> None:
    bench = TierBench(model, ours(shared_daemon, salt="hung", timeout_ms=5000))
    filled(bench, 1)
    assert bench.store(keys(1), [0]).success
    os.kill(shared_daemon.pid, signal.SIGSTOP)
    try:
        assert bench.tier.lookup(keys(1)[0], REQUEST) is LookupResult.RETRY
        bench.tier.on_schedule_end(ScheduleEndContext(new_req_ids=[], preempted_req_ids=[]))
        load = bench.job(keys(1), [3], is_load=True)
        bench.tier.submit_load(load)
        # Had one of these calls waited, the load would have failed by now.
        assert list(bench.tier.get_finished_jobs()) == []
        assert bench.tier.has_pending_work()
    finally:
        os.kill(shared_daemon.pid, signal.SIGCONT)
    bench.finished(load)
    bench.tier.shutdown()


def test_absent_daemon_is_a_miss(model: Path, shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    bench = TierBench(model, ours(shared_daemon) | {"socket": str(tmp_path / "absent.sock")})
    assert not bench.store(keys(1), [0]).success
    assert bench.lookup(*keys(1)) == [LookupResult.MISS]
    assert not bench.load(keys(1), [0]).success
    bench.tier.shutdown()


def test_flipped_byte_is_not_promoted(model: Path, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        bench = TierBench(model, ours(daemon))
        filled(bench, 1)
        assert bench.store(keys(1), [0]).success
        with Client(daemon.socket_path, arena_bytes=1 << 20, strict=True) as client:
            wait_until(lambda: bool(client.admin.list_chunks().chunks))
            (chunk,) = client.admin.list_chunks().chunks
        bench.tier.shutdown()
        assert daemon.terminate() == 0
        with daemon.devices[chunk.device_index].open("r+b") as file:
            file.seek(chunk.offset + 4096)
            file.write(b"\xff")
        daemon.start()
        again = TierBench(model, ours(daemon))
        assert again.lookup(*keys(1)) == [LookupResult.HIT]
        result = again.load(keys(1), [3])
        assert not result.success
        assert not again.host.any()
        again.tier.shutdown()


def test_unknown_weights_switch_the_tier_off(
    shared_daemon: DaemonProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TierBench(tmp_path / "none", ours(shared_daemon))
    assert not bench.store(keys(1), [0]).success
    assert bench.lookup(*keys(1)) == [LookupResult.MISS]
    assert "kvstored is off in this tier" in caplog.text
    bench.tier.shutdown()


def test_another_revision_shares_nothing(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    model = tmp_path / "none"
    first = TierBench(model, ours(shared_daemon, salt="revisions", revision="one"))
    assert first.store(keys(1), [0]).success
    other = TierBench(model, ours(shared_daemon, salt="revisions", revision="two"))
    same = TierBench(model, ours(shared_daemon, salt="revisions", revision="one"))
    assert other.lookup(*keys(1)) == [LookupResult.MISS]
    assert same.lookup(*keys(1)) == [LookupResult.HIT]
    for bench in (first, other, same):
        bench.tier.shutdown()
