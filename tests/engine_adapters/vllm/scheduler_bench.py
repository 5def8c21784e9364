"""vLLM's real scheduler without a model: a test plays the workers."""

import itertools
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch
from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from engine_adapters.vllm.messages.orders import (
    LoadEnd,
    LoadOrder,
    LoadProgress,
    StepOrders,
    WorkerReport,
)
from engine_adapters.vllm.messages.tally import joined
from engine_adapters.vllm.metadata import OrdersMetadata, ReportMetadata
from engine_adapters.vllm.scheduler_side.side import SchedulerSide
from engine_adapters.vllm.testing.engine_arguments import LEAST_WAIT_MS
from tests.support.waiting import PATIENCE_S

BLOCK_TOKENS = 16
CHUNK_TOKENS = 64
LAYERS = ("layers.0",)
MATCH_TIMEOUT_MS = int(PATIENCE_S * 1000)
"""So that no look-up is given up, however busy the machine is."""
TOKENS_MAX = 2048
_NUMBERS = itertools.count()


def scheduler_config(scheduler: type, batch_tokens: int, *, is_async: bool) -> SchedulerConfig:
    """Of steps of at most ``batch_tokens``, which may end within a prompt."""
    return SchedulerConfig(
        max_num_seqs=16,
        max_num_batched_tokens=batch_tokens,
        max_model_len=TOKENS_MAX,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=is_async,
        scheduler_cls=scheduler,
    )


def blocks_without_memory(block_count: int) -> KVCacheConfig:
    """So many blocks of one layer, of which the scheduler knows the numbers only."""
    spec = FullAttentionSpec(
        block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=32, dtype=torch.float32
    )
    return KVCacheConfig(
        num_blocks=block_count,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(list(LAYERS), spec)],
    )


class SchedulerBench:
    """A scheduler with our connector and a pool of ``block_count`` blocks, in its own namespace
    unless it has the ``salt`` of another.

    ``step`` schedules and remembers; ``answer`` gives the oldest step that has no answer its
    output, so that any number of steps can be in flight.
    """

    def __init__(
        self,
        model: Path,
        socket: Path,
        *,
        scheduler: type,
        mode: str = "prefix",
        block_count: int = 200,
        is_async: bool = False,
        batch_tokens: int = 128,
        prefix_caching: bool = False,
        tensor_size: int = 1,
        match_timeout_ms: int = MATCH_TIMEOUT_MS,
        match_wait_ms: int = 1,
        has_events: bool = False,
        salt: str = "",
    ) -> None:
        init_none_hash(sha256)
        self.salt = salt or f"bench {next(_NUMBERS)}"
        transfer = KVTransferConfig(
            kv_connector="KvstoredConnector",
            kv_connector_module_path="engine_adapters.vllm.connector",
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={
                "socket": str(socket),
                "mode": mode,
                "salt": self.salt,
                "match_timeout_ms": match_timeout_ms,
                "match_wait_ms": match_wait_ms,
                "least_wait_ms": LEAST_WAIT_MS,
            },
        )
        config = VllmConfig(
            model_config=ModelConfig(model=str(model), dtype="float32", max_model_len=TOKENS_MAX),
            cache_config=CacheConfig(block_size=BLOCK_TOKENS, enable_prefix_caching=prefix_caching),
            scheduler_config=scheduler_config(scheduler, batch_tokens, is_async=is_async),
            device_config=DeviceConfig("cpu"),
            kv_transfer_config=transfer,
        )
        config.scheduler_config.async_scheduling = is_async
        config.kv_events_config = KVEventsConfig(
            enable_kv_cache_events=has_events, publisher="null"
        )
        config.parallel_config.tensor_parallel_size = tensor_size
        config.cache_config.num_gpu_blocks = block_count
        self.scheduler = scheduler(
            vllm_config=config,
            kv_cache_config=blocks_without_memory(block_count),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_TOKENS,
            log_stats=True,
        )
        hashes = prefix_caching or has_events
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, sha256) if hashes else None
        self.in_flight: deque[SchedulerOutput] = deque()
        self.counts: dict[str, float] = {}
        """What the connector counted, as vLLM's metrics would show it."""
        self.external_hits = 0
        """vLLM's own count of tokens that came from outside."""

    @property
    def side(self) -> SchedulerSide:
        """The connector's side."""
        side = self.scheduler.connector.scheduler_side
        assert isinstance(side, SchedulerSide)
        return side

    @property
    def free_blocks(self) -> int:
        """Blocks of the pool that nobody holds."""
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    @property
    def all_blocks(self) -> int:
        """Blocks of the pool, without the one that stands for none."""
        return self.scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1

    def add(
        self,
        name: str,
        token_count: int,
        *,
        max_tokens: int = 4,
        first: int = 0,
        cache_salt: str | None = None,
    ) -> Request:
        """A request whose tokens are ``first``, ``first + 1``, ..."""
        sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        sampling.update_from_generation_config({}, 2)
        request = Request(
            request_id=name,
            prompt_token_ids=[(first + index) % 500 for index in range(token_count)],
            sampling_params=sampling,
            pooling_params=None,
            block_hasher=self._hasher,
            cache_salt=cache_salt,
        )
        self.scheduler.add_request(request)
        return request

    def step(self) -> StepOrders:
        """Schedules one step and returns its orders."""
        output = self.scheduler.schedule()
        self.in_flight.append(output)
        metadata = output.kv_connector_metadata
        assert isinstance(metadata, OrdersMetadata)
        return metadata.orders

    @property
    def last(self) -> SchedulerOutput:
        """What was scheduled last."""
        return self.in_flight[-1]

    def step_until(self, condition: Callable[[StepOrders], object]) -> StepOrders:
        """Steps, and answers all but the last, until one fulfils the condition.

        Look-ups need time of their own; a condition that never holds fails the test.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            orders = self.step()
            if condition(orders):
                return orders
            self.answer()
            time.sleep(0.001)
        raise AssertionError(f"it did not happen in {PATIENCE_S} s")

    def step_until_load(self) -> LoadOrder:
        """The next load; the step that orders it has no answer yet."""
        return self.step_until(lambda orders: orders.loads).loads[0]

    def answer(
        self,
        *reports: WorkerReport,
        finished: tuple[str, ...] = (),
        bad_blocks: tuple[int, ...] = (),
    ) -> None:
        """Output of the oldest step in flight: one token for every request that samples."""
        output = self.in_flight.popleft()
        sampled = []
        for request_id, count in output.num_scheduled_tokens.items():
            request = self.scheduler.requests.get(request_id)
            is_last = request is not None and self._ends_prefill(output, request, count)
            sampled.append([7] if is_last else [])
        report = None
        if reports:
            report = ReportMetadata(reports[0])
            for other in reports[1:]:
                report = report.aggregate(ReportMetadata(other))
        ids = list(output.num_scheduled_tokens)
        answers = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={name: index for index, name in enumerate(ids)},
                sampled_token_ids=sampled,
                kv_connector_output=KVConnectorOutput(
                    finished_recving=set(finished),
                    invalid_block_ids=set(bad_blocks),
                    kv_connector_worker_meta=report,
                ),
            ),
        )
        for answer in answers.values():
            if answer.scheduler_stats is not None:
                counts = answer.scheduler_stats.kv_connector_stats or {}
                self.counts = joined(self.counts, counts)
                hits = answer.scheduler_stats.connector_prefix_cache_stats
                self.external_hits += 0 if hits is None else hits.hits

    def run(self) -> None:
        """Steps with answers until no request is left and the workers know it."""
        while self.in_flight:
            self.answer()
        self.step_until(lambda _: not self.scheduler.has_unfinished_requests())
        self.answer()

    def position(self, request_id: str) -> int:
        """Where the last scheduled step begins for the request."""
        for new in self.last.scheduled_new_reqs:
            if new.req_id == request_id:
                return new.num_computed_tokens
        cached = self.last.scheduled_cached_reqs
        return cached.num_computed_tokens[cached.req_ids.index(request_id)]

    def close(self) -> None:
        """Ends the connector's threads."""
        self.scheduler.shutdown()

    def _ends_prefill(self, output: SchedulerOutput, request: Request, count: int) -> bool:
        if request.request_id in {new.req_id for new in output.scheduled_new_reqs}:
            (first,) = [
                new.num_computed_tokens
                for new in output.scheduled_new_reqs
                if new.req_id == request.request_id
            ]
        else:
            cached = output.scheduled_cached_reqs
            first = cached.num_computed_tokens[cached.req_ids.index(request.request_id)]
        return first + count >= request.num_tokens

    @staticmethod
    def loaded(load: LoadOrder, first: int, *, workers: int = 1) -> WorkerReport:
        """A report that a worker has the chunks from ``first`` on."""
        return WorkerReport(
            progress={load.load_id: LoadProgress(first_loaded=first, workers=workers)}
        )

    @staticmethod
    def ended(load: LoadOrder, *, lost: tuple[int, ...] = ()) -> WorkerReport:
        """A report that a load has ended in one worker."""
        count = 0 if lost else len(load.span.block_ids)
        return WorkerReport(
            ends=(LoadEnd(load_id=load.load_id, loaded_blocks=count, lost_chunks=lost),)
        )


__all__ = ["BLOCK_TOKENS", "CHUNK_TOKENS", "RequestStatus", "SchedulerBench"]
