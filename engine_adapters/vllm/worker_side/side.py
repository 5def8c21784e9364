"""What the connector does in a worker: carries out the orders of each step."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine_adapters.device_copies.open_copies import UnknownDeviceError, open_copies
from engine_adapters.reading.read_policy import SPANS_IN_FLIGHT
from engine_adapters.reading.section import whole_section
from engine_adapters.restore import LoadClock, StepCosts
from engine_adapters.vllm.blocks.block_filler import PROJECTED_CHUNKS_MAX, BlockFiller, Projection
from engine_adapters.vllm.blocks.block_layout import BlockShapeError
from engine_adapters.vllm.blocks.block_rows import GatheredRows
from engine_adapters.vllm.blocks.decoder_layers import LayerShapeError
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.blocks.projection_check import ProjectionCheck
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder, StepOrders, WorkerReport
from engine_adapters.vllm.settings.options import AdapterOptions
from engine_adapters.vllm.worker_side.between_forwards import BetweenForwards
from engine_adapters.vllm.worker_side.layer_inputs import LayerInputs
from engine_adapters.vllm.worker_side.load_job import LoadPlace
from engine_adapters.vllm.worker_side.loader import Loader
from engine_adapters.vllm.worker_side.meetings import Meetings
from engine_adapters.vllm.worker_side.save_pieces import layers_of
from engine_adapters.vllm.worker_side.saver import Saver
from engine_adapters.vllm.worker_side.step_timer import StepTimer
from engine_adapters.vllm.worker_side.thread_cores import unbound_threads
from kvstored_client import Client, StateKind, StateLayout

LOGGER = logging.getLogger("vllm.kvstored")
IDLE_S = 0.001
"""How long a step that computes nothing leaves the interpreter to the loader."""
NOTHING = WorkerReport()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What the engine says of its KV cache: ``dtype`` of the model's states, tokens of a block."""

    dtype: torch.dtype
    block_count: int
    block_tokens: int
    layer_names: tuple[str, ...]
    open_blocks_max: int
    """Blocks that can be written to at a time."""


class WorkerSide:
    """One for each worker. All methods run in the engine's thread and never wait for the store.

    Begins when the caches are there and the first orders have named the model's fingerprint.
    """

    def __init__(
        self,
        client: Client,
        options: AdapterOptions,
        layout_of: Callable[[str], StateLayout],
        *,
        shape: CacheShape,
        costs: StepCosts,
        meetings: Meetings | None = None,
    ) -> None:
        """Each of several ranks stores a part of every layer input, with ``meetings``."""
        self._client = client
        self._options = options
        self._layout_of = layout_of
        self._shape = shape
        self._steps = StepTimer(costs)
        self._inputs: LayerInputs | None = None
        self._between = BetweenForwards()
        self._meetings = meetings
        self._blocks: KvBlocks | None = None
        with unbound_threads():
            # By the time that the model is loaded there is a session.
            threading.Thread(target=client.available, name="kvstored-open", daemon=True).start()
        self._refused: list[LoadOrder] = []
        self._told_refusal = ""
        self._loader: Loader | None = None
        self._saver: Saver | None = None
        self._has_failed = False
        """Whether a forward did not end."""
        self.is_settled = False
        """After ``take_report``: nothing is under way or untold, so that steps which ask nothing
        need not come here."""

    def use_caches(self, caches: Mapping[str, Tensor]) -> None:
        """The engine has made its KV cache."""
        (device,) = {cache.device for cache in caches.values()}
        self._steps.is_on = device.type == "cpu"
        try:
            self._blocks = KvBlocks(
                caches,
                self._shape.layer_names,
                copies=open_copies(device),
                block_count=self._shape.block_count,
            )
        except (BlockShapeError, UnknownDeviceError, KeyError) as error:
            LOGGER.warning("kvstored is off in this worker: %s", error)

    def use_model(self, model: nn.Module, hooks: LayerHooks) -> None:
        """The engine has loaded its model, of which layer inputs are to be saved."""
        self._inputs = LayerInputs(model, hooks)

    def begin_step(self, orders: StepOrders) -> None:
        """Takes the orders of a step, before anything of it is computed."""
        self.is_settled = False
        self._steps.forget()
        try:
            is_open = self._begin(orders)
        finally:
            # Whatever happened here, the other ranks wait for this one.
            if self._meetings is not None and orders.meetings:
                self._meetings.meet(orders.meetings)
        if self._inputs is not None:
            self._inputs.begin_forward()
        if is_open:
            self._steps.begin()

    def _begin(self, orders: StepOrders) -> bool:
        """Whether this worker takes orders."""
        if not orders.fingerprint:
            return False
        if self._loader is None and not self._open(orders.fingerprint):
            self._refused += orders.loads
            return False
        assert self._loader is not None
        for load_id in orders.cancels:
            self._loader.cancel(load_id)
        self._between.serve()
        for load in orders.loads:
            self._loader.start(load, claimed_chunks=orders.claims.get(load.load_id, 0))
        for load_id, chunk_count in orders.claims.items():
            self._loader.claim(load_id, chunk_count)
        return True

    def note_attention(self, attention: object) -> None:
        """What vLLM says of the attention of each layer, where it says it outside of a forward."""
        if self._inputs is not None:
            self._inputs.note_attention(attention)

    def end_forward(self, orders: StepOrders, *, has_failed: bool = False) -> None:
        """The step is computed: its complete chunks are copied.

        Where it has failed nothing is saved from here on: its blocks hold anything, and so may
        what later steps compute from them.
        """
        if self._inputs is not None:
            self._inputs.end_forward(has_failed=has_failed, is_idle=orders.is_idle)
        if has_failed:
            self._steps.forget()
            self._stop_saving()
        else:
            self._steps.end(orders)
        if self._saver is not None and orders.saves:
            self.is_settled = False
            self._saver.save(orders.saves)

    def take_finished(self, *, is_idle: bool) -> set[str]:
        """Requests whose load has ended; an idle step gives the loader time first."""
        if self._loader is None:
            return {load.request_id for load in self._refused if not load.overtaken}
        if is_idle:
            self._loader.wait(IDLE_S)
            self._between.serve()
        return self._loader.take_finished()

    def take_bad_blocks(self) -> set[int]:
        """Blocks of such requests that were not filled."""
        if self._loader is None:
            waited_for = (load for load in self._refused if not load.overtaken)
            return {block for load in waited_for for block in load.span.block_ids}
        return self._loader.take_bad_blocks()

    def take_report(self) -> WorkerReport:
        """What the scheduler's side should know; the last thing that is taken after a step."""
        if self._loader is None or self._saver is None:
            refused, self._refused = self._refused, []
            return WorkerReport(
                ends=tuple(
                    LoadEnd(
                        load_id=load.load_id,
                        loaded_blocks=0,
                        lost_chunks=(load.span.chunks.start,),
                    )
                    for load in refused
                )
            )
        progress, ends = self._loader.progress(), self._loader.take_ends()
        refusals = self._new_refusal(self._loader.rank)
        # A worker that was refused is asked until it has said that it no longer is.
        is_idle = self._loader.is_settled and self._saver.is_settled
        are_staged = self._inputs is not None and self._inputs.are_staged
        self.is_settled = is_idle and not self._told_refusal and not are_staged
        if not (progress or ends or refusals):
            return NOTHING
        return WorkerReport(progress=progress, ends=ends, refusals=refusals)

    @property
    def is_connected(self) -> bool:
        """Whether a session with the daemon lives."""
        return self._client.epoch != 0

    @property
    def is_saving(self) -> bool:
        """Whether something that was taken is not in the store yet."""
        return self._saver is not None and self._saver.is_busy

    def take_counts(self) -> dict[str, float]:
        """What was counted since the last call."""
        return {} if self._saver is None else self._saver.take_counts()

    def close(self) -> None:
        """Ends all threads; what was taken is saved first, within a bounded time."""
        self._between.close()
        self._take_no_inputs()
        if self._loader is not None:
            self._loader.close()
        if self._saver is not None:
            self._saver.drain()
        if self._inputs is not None:
            self._inputs.close()
        try:
            if self._blocks is not None:
                self._blocks.copies.pin(None)
        finally:
            self._client.close()

    def _new_refusal(self, rank: int) -> dict[int, str]:
        """What the daemon says to this worker, by its rank, if it is news."""
        refusal = self._client.refusal
        if refusal == self._told_refusal:
            return {}
        self._told_refusal = refusal
        return {rank: refusal}

    def _stop_saving(self) -> None:
        self._has_failed = True
        if self._saver is not None:
            self._saver.stop()

    def _take_no_inputs(self) -> None:
        if self._inputs is not None:
            self._inputs.stop()

    def _open(self, fingerprint: str) -> bool:
        if self._blocks is None:
            return False
        layout = self._layout_of(fingerprint)
        chunk_bytes, room_bytes = (
            whole_section(layout).region_bytes(1),
            self._client.region_bytes_max,
        )
        span_chunks = span_chunks_for(
            chunk_bytes, room_bytes=room_bytes, span_bytes=self._options.span_bytes
        )
        if span_chunks == 0:
            LOGGER.warning(
                "kvstored is off in this worker: a chunk has %d bytes and arena_bytes room for %d; "
                "set a larger arena_bytes or a smaller chunk_tokens",
                chunk_bytes,
                room_bytes,
            )
            self._blocks = None
            return False
        if wrong := wrong_size(self._blocks, layout, block_tokens=self._shape.block_tokens):
            LOGGER.warning("kvstored is off in this worker: %s", wrong)
            self._blocks = None
            return False
        try:
            projection = self._hook(layout)
        except LayerShapeError as error:
            LOGGER.warning(
                "kvstored is off in this worker: %s, so hidden states cannot be saved; use mode "
                "prefix or cake",
                error,
            )
            self._blocks = None
            return False
        filler = BlockFiller(
            self._blocks,
            layout,
            block_tokens=self._shape.block_tokens,
            dtype=self._shape.dtype,
            projection=projection,
            rows=self._rows,
        )
        meetings = self._meetings if filler.needs_engine else None
        if meetings is not None and not self._prepare(meetings, layout):
            self._blocks = None
            return False
        with unbound_threads():
            self._start_threads(layout, filler, span_chunks, meetings)
        return True

    def _prepare(self, meetings: Meetings, layout: StateLayout) -> bool:
        assert self._blocks is not None
        hidden = [state for state in layout.layers if state.kind is StateKind.HIDDEN]
        try:
            meetings.prepare(
                chunks_max=PROJECTED_CHUNKS_MAX,
                row_count_max=PROJECTED_CHUNKS_MAX * layout.chunk_tokens,
                row_bytes=hidden[0].token_bytes,
                layer_count=len(hidden),
                device=self._blocks.device,
            )
        except RuntimeError as error:
            # Of a CPU without memory it is no OutOfMemoryError.
            LOGGER.warning("kvstored is off in this worker: %s", error)
            return False
        return True

    def _start_threads(
        self,
        layout: StateLayout,
        filler: BlockFiller,
        span_chunks: int,
        meetings: Meetings | None,
    ) -> None:
        assert self._blocks is not None
        self._saver = Saver(
            self._client,
            layout,
            self._blocks,
            span_chunks=span_chunks,
            worker_count=layout.shard.tensor_size,
            rows=self._rows,
            check=ProjectionCheck(self._blocks, filler, layout) if filler.needs_engine else None,
            give_up=self._take_no_inputs,
        )
        if self._has_failed:
            self._saver.stop()
        self._loader = Loader(
            LoadPlace(
                client=self._client,
                layout=layout,
                filler=filler,
                between=self._between,
                span_chunks=span_chunks,
                timeout_s=self._options.load_timeout_s,
                costs=self._steps.costs,
                clock=LoadClock(),
                least_wait_s=self._options.least_wait_s,
                meetings=meetings,
            )
        )

    @property
    def _rows(self) -> GatheredRows | None:
        return None if self._inputs is None else self._inputs.rows

    def _hook(self, layout: StateLayout) -> Projection | None:
        """What makes keys and values of layer inputs, which are gathered from here on."""
        hidden = layers_of(layout, StateKind.HIDDEN)
        if not hidden:
            return None
        if self._inputs is None:
            # Some other connector stands between the worker and this one.
            raise LayerShapeError("the worker does not show its model")
        assert self._blocks is not None
        projection = self._inputs.project(hidden)
        if self._options.saves:
            with unbound_threads():
                self._inputs.gather(
                    hidden,
                    device=self._blocks.device,
                    copies=self._blocks.copies,
                    capacity=self._shape.open_blocks_max,
                    block_tokens=self._shape.block_tokens,
                )
        return projection


def span_chunks_for(chunk_bytes: int, *, room_bytes: int, span_bytes: int) -> int:
    """Chunks of one read: the reads of a load and a save have room beside each other.

    One where a single chunk is larger than that; 0 where not even that has room.
    """
    if room_bytes < chunk_bytes:
        return 0
    return max(1, min(span_bytes, room_bytes // (SPANS_IN_FLIGHT + 1)) // chunk_bytes)


def wrong_size(blocks: KvBlocks, layout: StateLayout, *, block_tokens: int) -> str:
    """One sentence about blocks that have other bytes than the layout says, else nothing."""
    for layer, state in enumerate(layout.layers):
        said = layout.slice_bytes(layer) * block_tokens // layout.chunk_tokens
        if state.kind is StateKind.KV and (there := blocks.block_bytes(layer)) != said:
            return f"a block of layer {layer} has {there} bytes and not {said}, as vLLM says"
    return ""
