"""What a step of the scheduler costs while many requests wait for a store that does not answer.

The scheduler's side is the connector's own; vLLM's part of a step and the store are left out.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from google.protobuf.message import Message

from benchmarks.benchmark import Settings
from benchmarks.report import Series, Summary
from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.identity.request_identity import RequestIdentifier
from engine_adapters.vllm.messages.engine_request import BlockTables, EngineRequest
from engine_adapters.vllm.scheduler_side.load_choice import LoadChoice
from engine_adapters.vllm.scheduler_side.lookup import Lookup
from engine_adapters.vllm.scheduler_side.side import SchedulerSide
from engine_adapters.vllm.settings.mode_choice import ModeChoice
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_client.testing import MemoryClient, MemoryStore
from kvstored_protos.v1 import store_pb2

FIGURES = ("step_waiting_ms",)
REQUESTS, STEPS, QUICK_STEPS = 200, 1000, 200
PROMPT_TOKENS, CHUNK_TOKENS, BLOCK_TOKENS = 1000, 64, 16
UNANSWERED_MS = 600_000


@dataclass(slots=True, kw_only=True)
class WaitingRequest:
    """A request that has not run yet."""

    request_id: str
    all_token_ids: Sequence[int]
    block_hashes: Sequence[bytes] = ()
    num_computed_tokens: int = 0
    num_prompt_tokens: int = PROMPT_TOKENS
    num_tokens: int = PROMPT_TOKENS
    num_preemptions: int = 0
    skip_reading_prefix_cache: bool = False
    lora_request: Any = None
    prefill_stats: Any = None


class _Anybody:
    def identity_of(self, _request: object) -> RequestIdentity:
        return RequestIdentity()


def measure(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """Milliseconds of each step, with all requests waiting."""
    say(f"steps with {REQUESTS} requests that wait")
    is_over = threading.Event()

    def hold(request: Message) -> None:
        if isinstance(request, store_pb2.MatchRequest):
            is_over.wait()

    store = MemoryStore()
    store.faults.before = hold
    side = scheduler_side(MemoryClient(store))
    try:
        samples = tuple(_steps(side, QUICK_STEPS if settings.quick else STEPS))
    finally:
        is_over.set()
        side.close()
    return (
        Series(key="step_waiting_ms", unit="ms", samples=samples, is_figure=True),
        Series(key="step_waiting_most_ms", unit="ms", samples=samples, summary=Summary.MOST),
    )


def scheduler_side(client: MemoryClient) -> SchedulerSide:
    """The side of an engine in mode ``prefix``, of which no request is given up."""
    options = AdapterOptions(match_timeout_ms=UNANSWERED_MS)
    layout = StateLayout(
        model="m",
        dtype="float32",
        layers=(LayerState(StateKind.KV, 1024),),
        chunk_tokens=CHUNK_TOKENS,
    )
    return SchedulerSide(
        options,
        fingerprint="m",
        identifier=cast("RequestIdentifier", _Anybody()),
        lookup=Lookup(
            client,
            [layout],
            fingerprint="m",
            timeout_s=options.match_timeout_s,
            lease_ms=options.lease_ms,
        ),
        choice=LoadChoice(
            mode=RestoreMode.PREFIX,
            planner=ModeChoice(
                profile=None, layer_count=1, chunk_tokens=CHUNK_TOKENS, step_tokens=PROMPT_TOKENS
            ),
            block_tokens=BLOCK_TOKENS,
        ),
        worker_count=1,
    )


def _steps(side: SchedulerSide, count: int) -> list[float]:
    requests: list[EngineRequest] = [
        WaitingRequest(request_id=f"{number}", all_token_ids=range(PROMPT_TOKENS))
        for number in range(REQUESTS)
    ]
    for request in requests:
        side.add_request(request)
    tables = cast("BlockTables", None)
    durations_ms = []
    for _ in range(count):
        started_s = time.perf_counter()
        for request in requests:
            side.matched_tokens(request, 0)
        side.step_orders({}, (), tables)
        durations_ms.append((time.perf_counter() - started_s) * 1e3)
    return durations_ms
