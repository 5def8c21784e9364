"""The store as a tier of vLLM's own offloading, behind its host tier. Imports vLLM (0.31 on).

Named by ``{"type": "KvstoredTier", "module_path": "engine_adapters.vllm.tier", "socket": ...}``
in ``secondary_tiers``. Neither Cake nor HCache is possible there: whole chunks are promoted to
the host tier before a request runs.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

import torch
from vllm import __version__ as vllm_version
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from engine_adapters.started_pool import started_pool
from engine_adapters.vllm.identity.tier_identity import tier_identity
from engine_adapters.vllm.messages.refusal import refusal_teller
from engine_adapters.vllm.settings.options import OptionError
from engine_adapters.vllm.tier_follower import TierChange, TierFollower
from engine_adapters.vllm.tier_store import TierStore
from engine_adapters.weights_identity import UnknownWeightsError
from kvstored_client import Client
from kvstored_client.session.arena import BOARDS_SHARE
from kvstored_contract.limits import DEADLINE_MS_MAX

LOGGER = logging.getLogger("vllm.kvstored")
LOAD_THREADS = 4
STORE_THREADS = 1
QUEUED_STORES_MAX = 64
"""Stores that wait for the daemon; further ones fail, and are counted by vLLM."""
SPAN_BYTES = 16 * 1024 * 1024
"""Of a put and of each span of a load: with one size for all, none leaves gaps in the arena."""
CLOSE_S = 10.0
_MIB = 1024 * 1024
_REMOVALS_ARE_ANNOUNCED = "removal_expected" in OffloadingEvent.__dataclass_fields__
"""vLLM 0.31 has no such field."""


class _Lookups(AsyncLookupManager):
    """vLLM's own look-ups in a thread, answered by the store."""

    def __init__(self, tier_type: str, store: TierStore) -> None:
        super().__init__(tier_type=tier_type)
        self._store = store

    def batch_lookup(self, keys: list[bytes], req_context: ReqContext) -> Iterable[bool]:
        """Which chunks are stored; vLLM asks for those of a request in their order."""
        del req_context
        return self._store.known(keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A transfer on its way; ``done`` is how many leading chunks were moved."""

    keys: tuple[bytes, ...]
    is_load: bool
    started_s: float
    done: Future[int]


class KvstoredTier(SecondaryTierManager):
    """One for each engine, in the scheduler's process. No method but ``drain_jobs`` waits.

    ``revision`` names the weights where the model is no local folder, ``identity`` whatever
    else changes the states and is not in vLLM's ``OffloadingConfig`` (overrides of the model's
    configuration, LoRA weights that change under their name). Where the weights are unknown
    the tier is off and says why.
    """

    medium = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        socket: str = "",
        arena_bytes: str | int = "256MiB",
        salt: str = "",
        revision: str = "",
        identity: str = "",
        timeout_ms: int = 10_000,
        enable_kv_events: bool = False,
    ) -> None:
        if not (isinstance(timeout_ms, int) and 0 < timeout_ms <= DEADLINE_MS_MAX):
            raise OptionError(
                f"timeout_ms of the KvstoredTier is a number from 1 to {DEADLINE_MS_MAX}, "
                f"not {timeout_ms!r}"
            )
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._jobs: dict[int, _Job] = {}
        self._stores_left = QUEUED_STORES_MAX
        self._results: list[JobResult] = []
        # Later the engine itself would hear that there is no thread.
        self._load_threads = started_pool(LOAD_THREADS, "kvstored-tier-load")
        self._store_threads = started_pool(STORE_THREADS, "kvstored-tier-store")
        self._store = self._open_store(
            Client(
                socket or None,
                arena_bytes=arena_bytes,
                name="vllm tier",
                salt=salt,
                on_refusal=refusal_teller(
                    "this tier",
                    arena=f"arena_bytes of the KvstoredTier, {arena_bytes}",
                    socket="socket of the KvstoredTier",
                ),
            ),
            revision=revision,
            named=identity,
            timeout_ms=timeout_ms,
        )
        self._lookups = None if self._store is None else _Lookups(tier_type, self._store)
        self._follower: TierFollower | None = None
        if enable_kv_events and self._store is not None:
            self._follower = self._store.follower()
            self._follower.start()

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        """Whether a chunk is stored; RETRY until the daemon has answered."""
        if self._lookups is None:
            return LookupResult.MISS
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Begins to put chunks of the host tier; fails at once when too much waits."""
        if self._store is None or self._stores_left == 0:
            self._results.append(JobResult(job_id=job_metadata.job_id, success=False))
            return
        self._stores_left -= 1
        keys, ids = _parts(job_metadata)
        done = self._store_threads.submit(_stored_count, self._store, keys, ids)
        self._begin(job_metadata, keys, done, is_load=False)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Begins to fill chunks of the host tier."""
        assert self._store is not None, "nothing is found without a store"
        keys, ids = _parts(job_metadata)
        done = self._load_threads.submit(self._store.load, keys, ids)
        self._begin(job_metadata, keys, done, is_load=True)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Transfers that ended since the last call; what was not loaded is a miss from now on."""
        for job_id, job in list(self._jobs.items()):
            if job.done.done():
                del self._jobs[job_id]
                self._results.append(self._result(job_id, job))
        results, self._results = self._results, []
        return results

    def has_pending_work(self) -> bool:
        """Whether vLLM should go on asking although no request is left."""
        return bool(self._jobs)

    def take_events(self) -> Iterable[OffloadingEvent]:
        """What the store has, and has not any more, of what was put, since the last call."""
        if self._follower is None:
            return ()
        return [_event_of(change) for change in self._follower.take()]

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """No wishes."""
        del req_context
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """What it had asked is forgotten."""
        if self._lookups is not None:
            self._lookups.cleanup(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """The look-ups of a step go to the daemon together."""
        del context
        if self._lookups is not None:
            self._lookups.flush()

    def drain_jobs(self) -> None:
        """Waits until nothing touches the host tier any more: each transfer has its deadline."""
        wait([job.done for job in self._jobs.values()])

    def shutdown(self) -> None:
        """Ends all threads; what was taken is stored first, within a bounded time."""
        wait([job.done for job in self._jobs.values()], timeout=CLOSE_S)
        for threads in (self._load_threads, self._store_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._follower is not None:
            self._follower.close()
        if self._store is not None:
            # Before the look-ups are waited for: those in the queue are answered at once then.
            self._store.close()
        if self._lookups is not None:
            self._lookups.shutdown()

    def _open_store(
        self, client: Client, *, revision: str, named: str, timeout_ms: int
    ) -> TierStore | None:
        config = self._offloading_spec.config
        try:
            identity = tier_identity(
                config,
                engine_version=vllm_version,
                instruction_set=_instruction_set(),
                chunk_bytes=self.block_size_bytes,
                revision=revision,
                named=named,
            )
        except (UnknownWeightsError, OSError) as error:
            LOGGER.warning("kvstored is off in this tier: %s", error)
            return None
        rows = torch.frombuffer(self._primary_kv_view.cast("B"), dtype=torch.uint8)
        tokens = max(group.tokens_per_block for group in config.groups)
        store = TierStore(
            client,
            rows.view(-1, self.block_size_bytes),
            fingerprint=identity.fingerprint(),
            chunk_tokens=tokens * config.cache.blocks_per_chunk,
            span_bytes=SPAN_BYTES,
            timeout_ms=timeout_ms,
        )
        _check_arena(client.region_bytes_max, store)
        return store

    def _begin(
        self, metadata: TransferJob, keys: tuple[bytes, ...], done: Future[int], *, is_load: bool
    ) -> None:
        self._jobs[metadata.job_id] = _Job(
            keys=keys, is_load=is_load, started_s=time.monotonic(), done=done
        )

    def _result(self, job_id: int, job: _Job) -> JobResult:
        count = 0 if job.done.exception() is not None else job.done.result()
        if (error := job.done.exception()) is not None:
            LOGGER.warning("kvstored: a transfer of the tier failed: %s", error)
        success = count == len(job.keys)
        if not job.is_load:
            self._stores_left += 1
            if success and self._follower is not None:
                self._follower.stored(job.keys)
        elif not success and self._lookups is not None:
            # Or vLLM would try to promote it again and again.
            self._lookups.mark_miss(job.keys[count:])
        return JobResult(
            job_id=job_id,
            success=success,
            successful_keys=job.keys[:count] if job.is_load and count and not success else None,
            transfer_time=time.monotonic() - job.started_s,
            transfer_bytes=count * self.block_size_bytes,
        )


def _event_of(change: TierChange) -> OffloadingEvent:
    """VLLM keeps what it knows of a chunk until its removal, if it hears that one will come."""
    fields: dict[str, Any] = {"removal_expected": True} if _REMOVALS_ARE_ANNOUNCED else {}
    return OffloadingEvent(
        keys=[OffloadKey(key) for key in change.offload_keys],
        medium=KvstoredTier.medium,
        removed=change.is_removed,
        **fields,
    )


def _check_arena(room_bytes: int, store: TierStore) -> None:
    """Raises OptionError: what finds no room fails, and vLLM goes on asking for it."""
    region_bytes = store.region_bytes
    count = LOAD_THREADS * store.spans_in_flight + STORE_THREADS
    if room_bytes >= count * region_bytes:
        return
    # The rest is kept for boards; whole MiB, so that rounding to pages takes nothing away.
    least_mib = count * region_bytes * BOARDS_SHARE // (BOARDS_SHARE - 1) // _MIB + 1
    raise OptionError(
        f"arena_bytes of the KvstoredTier has room for {room_bytes} bytes, but {count} spans "
        f"of up to {region_bytes} bytes are moved at once; set arena_bytes to at least "
        f'"{least_mib}MiB"'
    )


def _parts(metadata: TransferJob) -> tuple[tuple[bytes, ...], Sequence[int]]:
    return tuple(metadata.keys), [int(chunk) for chunk in metadata.chunk_ids]


def _stored_count(store: TierStore, keys: Sequence[bytes], ids: Sequence[int]) -> int:
    return len(keys) if store.store(keys, ids) else 0


def _instruction_set() -> str:
    """What blocks are laid out for."""
    if current_platform.device_type != "cpu":
        return f"{current_platform.device_type} {current_platform.get_device_name()}"
    # vLLM chooses its layout by what the CPU can do.
    abilities = sorted(name for name, has in torch.cpu.get_capabilities().items() if has is True)
    return f"cpu {torch.backends.cpu.get_cpu_capability()} {' '.join(abilities)}"
