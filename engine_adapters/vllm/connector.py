"""The connector that vLLM loads. Imports vLLM; everything that decides lies in its two sides."""

import atexit
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from vllm import __version__ as vllm_version
from vllm.config import VllmConfig
from vllm.distributed.kv_events import KVCacheEvent
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import KVConnectorOutput

from engine_adapters.restore import load_profile
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.events.change_follower import FollowedStore
from engine_adapters.vllm.events.router_events import tellers_of
from engine_adapters.vllm.messages.engine_request import EngineRequest
from engine_adapters.vllm.messages.orders import StepOrders
from engine_adapters.vllm.messages.refusal import teller_of
from engine_adapters.vllm.metadata import OrdersMetadata, ReportMetadata
from engine_adapters.vllm.scheduler_side.load_choice import LoadChoice
from engine_adapters.vllm.scheduler_side.lookup import Lookup
from engine_adapters.vllm.scheduler_side.side import SchedulerSide
from engine_adapters.vllm.scheduler_side.telling import Telling
from engine_adapters.vllm.scheduler_side.waiting_hints import WaitingHints
from engine_adapters.vllm.settings.engine_config import (
    cache_dtype,
    facts_of,
    identifier_of,
    identity_of,
    open_blocks_max,
    shard_of,
    state_shape,
)
from engine_adapters.vllm.settings.mode_choice import ModeChoice
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode
from engine_adapters.vllm.settings.state_kinds import (
    all_kv,
    engine_profile,
    state_layout,
    stored_kinds,
)
from engine_adapters.vllm.settings.support import (
    Support,
    device_note,
    projects_hidden,
    supported,
    transfer_notes,
    version_note,
)
from engine_adapters.vllm.statistics import KvstoredPromMetrics, KvstoredStats
from engine_adapters.vllm.worker_side.forward_watch import ForwardWatch
from engine_adapters.vllm.worker_side.side import CacheShape, WorkerSide
from engine_adapters.vllm.worker_side.tensor_ranks import meetings_of_ranks
from engine_adapters.weights_identity import UnknownWeightsError
from kvstored_client import Client, StateKind, StateLayout

LOGGER = logging.getLogger("vllm.kvstored")
SCHEDULER_ARENA_BYTES = 1024 * 1024  # The scheduler moves no payload.


class KvstoredConnector(KVConnectorBase_V1):
    """Saves and restores KV blocks through the daemon of this node.

    One instance in the scheduler and one in each worker, as vLLM asks for. Failures of the
    store are misses: with ``kv_load_failure_policy`` "recompute" a request computes what could
    not be loaded.
    """

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._options = AdapterOptions.parse(self._kv_transfer_config.kv_connector_extra_config)
        facts = facts_of(vllm_config, kv_cache_config)
        self._support = supported(self._options.mode, facts)
        path = self._options.cost_profile
        self._profile = load_profile(Path(path)) if path else None
        self.scheduler_side: SchedulerSide | None = None
        self.worker_side: WorkerSide | None = None
        self._forward = ForwardWatch()
        self._concerned: WorkerSide | None = None
        """The worker's side in steps that concern it: every token waits for all the others."""
        if role is KVConnectorRole.SCHEDULER:
            self._say(self._support.reason)
            self._say(version_note(vllm_version))
            if self._support.mode is not RestoreMode.OFF:
                self._say(device_note(facts.device))
            transfer = self._kv_transfer_config
            for note in transfer_notes(transfer.kv_role, transfer.kv_load_failure_policy):
                self._say(note)
        if self._support.mode is RestoreMode.OFF:
            return
        if self._profile is not None:
            shape = state_shape(vllm_config, kv_cache_config)
            self._profile = engine_profile(self._profile, shape, rank_count=facts.tensor_size)
        self._choice = self._make_choice(projects_hidden=projects_hidden(facts))
        if role is KVConnectorRole.SCHEDULER:
            self.scheduler_side = self._make_scheduler_side()
        else:
            self.worker_side = self._make_worker_side()
            # An engine inside a script is not always shut down; what it saved is put all the same.
            atexit.register(self.worker_side.close)

    # The scheduler's side.

    def on_new_request(self, request: Any) -> None:
        """A request arrived."""
        if self.scheduler_side is not None:
            self.scheduler_side.add_request(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens to load before the request runs, and whether that happens between steps."""
        if self.scheduler_side is None:
            return 0, False
        return self.scheduler_side.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request has blocks."""
        if self.scheduler_side is not None:
            self.scheduler_side.allocated(request, num_external_tokens, self)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Orders for the workers."""
        if self.scheduler_side is None:
            return OrdersMetadata(StepOrders(fingerprint=""))
        return OrdersMetadata(
            self.scheduler_side.step_orders(
                scheduler_output.num_scheduled_tokens,
                scheduler_output.preempted_req_ids or (),
                self,
            )
        )

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """What the workers said."""
        report = connector_output.kv_connector_worker_meta
        if self.scheduler_side is not None and isinstance(report, ReportMetadata):
            self.scheduler_side.take_report(report.report)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """A request ended; its blocks are never held for a save, which has copied them."""
        if self.scheduler_side is not None:
            self.scheduler_side.finish_request(request.request_id)
        return False, None

    def take_events(self) -> Iterable[KVCacheEvent]:
        """Blocks that the store took or lost, as far as is known since the last call."""
        side = self.scheduler_side
        if side is None or side.telling.follower is None:
            return ()
        return side.telling.follower.take()

    def reset_cache(self) -> bool:
        """VLLM forgets all states, as after an update of the weights in place.

        What the fingerprint says of them may be wrong from here on.
        """
        if self.scheduler_side is not None:
            self.scheduler_side.begin_generation()
            self._say(
                "kvstored: the cache was reset, and the weights may be others now; until it is "
                "started again this engine restores what it stores from here on, and nothing else."
            )
        return True

    # What the scheduler's side may ask of the scheduler.

    def ids_of(self, request_id: str) -> Sequence[int]:
        """Numbers of all blocks of a request."""
        assert self._kv_cache_manager is not None
        ids: Sequence[int] = self._kv_cache_manager.get_block_ids(request_id)[0]
        return ids

    def reserve_all(self, request: EngineRequest) -> bool:
        """Blocks for all tokens of a request: a load needs its last blocks at once."""
        assert self._kv_cache_manager is not None
        reserved = self._kv_cache_manager.allocate_slots(
            request, request.num_tokens, delay_cache_blocks=True
        )
        return reserved is not None

    # The workers' side.

    def register_kv_caches(self, kv_caches: dict[str, Tensor]) -> None:
        """The engine has made its KV cache."""
        if self.worker_side is not None:
            self.worker_side.use_caches(kv_caches)

    def use_model(self, model: nn.Module, hooks: LayerHooks) -> bool:
        """The worker class of mode ``hcache`` shows its model; whether its inputs are saved."""
        if self.worker_side is None:
            return False
        self.worker_side.use_model(model, hooks)
        return self._choice.stores_hidden and self._options.saves

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Before every step: what is computed from here on is not loaded any more."""
        super().bind_connector_metadata(connector_metadata)
        self._forward.begin()
        side, orders = self.worker_side, self._orders
        if side is None or (orders.asks_nothing and side.is_settled):
            self._concerned = None
        else:
            self._concerned = side
            side.begin_step(orders)

    def has_connector_metadata(self) -> bool:
        """Never: vLLM asks whether layers have to be announced, and no layer is waited for."""
        return False

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Loads began with the step; the V2 runner tells here where a captured forward writes."""
        if self._concerned is not None:
            self._concerned.note_attention(kwargs.get("attn_metadata"))

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: no forward depends on a load of the same step."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing: complete blocks are copied after the forward."""

    def wait_for_save(self) -> None:
        """After every forward: copies what is complete."""
        side = self.worker_side if self._forward.has_failed else self._concerned
        if side is not None:
            side.end_forward(self._orders, has_failed=self._forward.has_failed)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Requests whose load has ended."""
        if self._concerned is None:
            return None, None
        return None, self._concerned.take_finished(is_idle=self._orders.is_idle) or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks of such requests that have to be computed."""
        return set() if self._concerned is None else self._concerned.take_bad_blocks()

    def build_connector_worker_meta(self) -> ReportMetadata | None:
        """What the scheduler's side should know."""
        if self._concerned is None:
            return None
        report = self._concerned.take_report()
        return None if report.is_empty else ReportMetadata(report)

    # Both sides.

    def get_kv_connector_stats(self) -> KvstoredStats | None:
        """What was counted since the last call."""
        side = self.scheduler_side or self._concerned
        counts = {} if side is None else side.take_counts()
        return KvstoredStats(data=dict(counts)) if counts else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KvstoredStats:
        """Counts that came from another process."""
        return KvstoredStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KvstoredPromMetrics:
        """One Prometheus counter for each of ours."""
        return KvstoredPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        """Ends all threads; what was taken is saved first, within a bounded time."""
        if self.scheduler_side is not None:
            self.scheduler_side.close()
        if self.worker_side is not None:
            atexit.unregister(self.worker_side.close)
            self.worker_side.close()

    @property
    def _orders(self) -> StepOrders:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, OrdersMetadata)
        return metadata.orders

    def _make_scheduler_side(self) -> SchedulerSide | None:
        config, spec = self._vllm_config, self._kv_cache_config.kv_cache_groups[0].kv_cache_spec
        try:
            fingerprint = identity_of(config, self._kv_cache_config).fingerprint()
        except (UnknownWeightsError, OSError) as error:
            self._support = Support(mode=RestoreMode.OFF)
            self._say(f"kvstored is off: {error}.")
            return None
        ranks = range(config.parallel_config.tensor_parallel_size)
        layouts = tuple(self._layout(fingerprint, rank) for rank in ranks)
        client = Client(
            self._options.socket or None,
            arena_bytes=SCHEDULER_ARENA_BYTES,
            name="vllm scheduler",
            salt=self._options.salt,
            on_refusal=teller_of("the scheduler", self._options),
        )
        followed = FollowedStore(client=client, layouts=layouts, fingerprint=fingerprint)
        tellers = tellers_of(
            config, followed, block_tokens=spec.block_size, manager=lambda: self._kv_cache_manager
        )
        return SchedulerSide(
            self._options,
            fingerprint=fingerprint,
            identifier=identifier_of(config),
            lookup=Lookup(
                client,
                layouts,
                fingerprint=fingerprint,
                timeout_s=self._options.match_timeout_s,
                lease_ms=self._options.lease_ms,
            ),
            choice=LoadChoice(
                mode=self._support.mode,
                planner=self._choice,
                block_tokens=spec.block_size,
                least_load_tokens=self._options.least_load_tokens,
            ),
            worker_count=len(layouts),
            hints=WaitingHints.of_client(client, layouts),
            telling=Telling(*tellers),
        )

    def _make_choice(self, *, projects_hidden: bool) -> ModeChoice:
        shape = state_shape(self._vllm_config, self._kv_cache_config)
        choice = ModeChoice(
            profile=self._profile,
            layer_count=len(shape.block_bytes),
            chunk_tokens=self._options.chunk_tokens_for(shape.block_tokens),
            step_tokens=self._vllm_config.scheduler_config.max_num_batched_tokens,
        )
        mode = self._support.mode
        if mode is RestoreMode.AUTO:
            stores_hidden = projects_hidden and choice.prefers_hidden
        else:
            stores_hidden = StateKind.HIDDEN in stored_kinds(mode, shape, self._profile)
        return replace(choice, stores_hidden=stores_hidden)

    def _make_worker_side(self) -> WorkerSide:
        config, group = self._vllm_config, self._kv_cache_config.kv_cache_groups[0]
        rank, block_tokens = get_tensor_model_parallel_rank(), group.kv_cache_spec.block_size
        return WorkerSide(
            Client(
                self._options.socket or None,
                arena_bytes=self._options.arena_bytes,
                name="vllm worker",
                salt=self._options.salt,
                on_refusal=teller_of(f"the worker of rank {rank}", self._options),
            ),
            self._options,
            lambda fingerprint: self._layout(fingerprint, rank),
            shape=CacheShape(
                dtype=config.model_config.dtype,
                block_count=self._kv_cache_config.num_blocks,
                block_tokens=block_tokens,
                layer_names=tuple(group.layer_names),
                open_blocks_max=open_blocks_max(config, self._options, block_tokens),
            ),
            costs=self._choice.step_costs(),
            meetings=meetings_of_ranks(),
        )

    def _layout(self, fingerprint: str, rank: int) -> StateLayout:
        shape = state_shape(self._vllm_config, self._kv_cache_config)
        return state_layout(
            fingerprint,
            dtype=cache_dtype(self._vllm_config),
            shape=shape,
            kinds=stored_kinds(self._support.mode, shape, self._profile)
            if self._choice.stores_hidden
            else all_kv(shape),
            chunk_tokens=self._options.chunk_tokens_for(shape.block_tokens),
            shard=shard_of(self._vllm_config, rank),
        )

    @staticmethod
    def _say(sentence: str) -> None:
        if sentence:
            LOGGER.warning("%s", sentence)
