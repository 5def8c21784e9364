"""Saves complete chunks: one copy on the engine's thread, everything else after it."""

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine_adapters.device_copies.landing import Landing, all_of
from engine_adapters.reading.section import whole_section
from engine_adapters.reading.section_reads import placement_of
from engine_adapters.vllm.blocks.block_rows import BlockRows, GatheredRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.blocks.projection_check import ProjectionCheck
from engine_adapters.vllm.messages.orders import SaveOrder
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.disconnections import Disconnections
from engine_adapters.vllm.worker_side.save_pieces import (
    SavePiece,
    layers_of,
    pieces_of,
    runs_of,
    with_notes_that_fit,
)
from kvstored_client import (
    Ack,
    Client,
    PutOutcome,
    PutReport,
    Reason,
    Region,
    StateKind,
    StateLayout,
)

LOGGER = logging.getLogger("vllm.kvstored")
QUEUED_MAX = 64
"""Snapshots that wait for the daemon; while so many do, saves are dropped."""
PUT_TIMEOUT_MS = 5000
LOOK_S = 1.0
"""How often a saver with nothing to put looks whether there is a session."""
DRAIN_S = 10.0
"""Longest that the end of the engine waits for saves on their way."""


@dataclass(frozen=True, slots=True)
class Filled:
    """``places`` of the pieces of a snapshot of which all layer inputs lie in the region.

    ``first_rows`` are those of the first of them, by blocks, where it is to be tried.
    """

    places: tuple[int, ...]
    first_rows: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Chunks on their way to the arena, to be put.

    ``memory`` is the region's: [layer_count, chunk_count, slice_stride] in bytes. What lay in
    blocks lies there when ``landing`` is over.
    """

    region: Region
    memory: Tensor
    pieces: tuple[SavePiece, ...]
    landing: Landing
    filled: "Future[Filled]" = field(default_factory=Future)


class SharedTally:
    """A tally that several threads add to. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tally = Tally()

    def add(self, name: str, amount: float = 1) -> None:
        """As ``Tally.add``."""
        with self._lock:
            self._tally.add(name, amount)

    def take(self) -> dict[str, float]:
        """As ``Tally.take``; without the lock while there is nothing, as in most steps."""
        if self.is_empty:
            return {}
        with self._lock:
            return self._tally.take()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted since the last ``take``."""
        return not self._tally.counts


def _nothing() -> None:
    pass


class Saver:
    """Copies blocks into the arena after a forward and has a thread put them.

    When the arena is full, too much waits, or there is no daemon, the save is dropped and
    counted: a later request that computes these chunks again saves them. With a ``check`` the
    first chunk is tried before anything is stored; when that fails ``give_up`` is called once, and
    all saves are dropped. The thread also connects the client when it has no session, and counts
    why it could not.
    """

    def __init__(
        self,
        client: Client,
        layout: StateLayout,
        blocks: KvBlocks,
        *,
        span_chunks: int,
        worker_count: int = 1,
        rows: GatheredRows | None = None,
        check: ProjectionCheck | None = None,
        give_up: Callable[[], None] = _nothing,
    ) -> None:
        self._client = client
        self._layout = layout
        self._blocks = blocks
        self._span_chunks = span_chunks
        self._worker_count = worker_count
        self._rows = rows
        self._check = check
        self._give_up = give_up
        self._is_off = False
        self._queue: queue.Queue[Snapshot | None] = queue.Queue()
        self._tally = SharedTally()
        self._disconnections = Disconnections(client)
        self._pinned_epoch = 0
        self._told_reasons: set[Reason] = set()
        self._thread = threading.Thread(target=self._run, name="kvstored-saver", daemon=True)
        self._thread.start()

    def save(self, orders: Iterable[SaveOrder]) -> None:
        """Takes the bytes of all chunks of a step."""
        if self._is_off:
            self._tally.add("dropped_saves", sum(len(order.chain_keys) for order in orders))
            return
        pieces = [piece for order in orders for piece in pieces_of(order, self._layout)]
        for first in range(0, len(pieces), self._span_chunks):
            self._take(pieces[first : first + self._span_chunks])

    def stop(self) -> None:
        """Takes nothing any more; what was taken is still put."""
        if not self._is_off:
            self._is_off = True
            LOGGER.warning(
                "kvstored: a step of this worker did not end, so nothing that it computes is saved "
                "any more; start the engine again"
            )

    def take_counts(self) -> dict[str, float]:
        """What was counted since the last call."""
        return self._tally.take()

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits to be put, and nothing of what was is left to be taken."""
        # In this order: what is put enters the tally before it stops to count as waiting.
        return not self.is_busy and self._tally.is_empty

    @property
    def is_busy(self) -> bool:
        """Whether something taken is not put yet."""
        return self._queue.unfinished_tasks > 0

    def drain(self) -> None:
        """Waits until what was taken is put, dropped, or DRAIN_S are over; ends the thread."""
        self._queue.put(None)
        self._thread.join(DRAIN_S)

    def _take(self, pieces: Sequence[SavePiece]) -> None:
        """Begins to copy what lies in blocks, and has layer inputs copied."""
        # No session, no call: connecting could block, and belongs to the thread.
        section, region = whole_section(self._layout), None
        if self._client.epoch and self._queue.qsize() < QUEUED_MAX and not self._is_off:
            region = self._client.allocate(section.region_bytes(len(pieces)), connects=False)
        if region is None:
            self._forget(pieces)
            self._tally.add("dropped_saves", len(pieces))
            return
        memory = region.tensor(
            torch.uint8, (section.layer_count, len(pieces), section.slice_stride)
        )
        landings: list[Landing] = []
        try:
            for layer in layers_of(self._layout, StateKind.KV):
                ids = [block for piece in pieces for block in piece.block_ids]
                slices = memory[layer, :, : self._layout.slice_bytes(layer)]
                landings.append(self._blocks.gather(layer, ids, slices))
        except torch.OutOfMemoryError as error:
            LOGGER.warning("kvstored: a save is dropped: %s", error)
            self._forget(pieces)
            self._drop(region, all_of(landings), len(pieces))
            return
        snapshot = Snapshot(
            region=region, memory=memory, pieces=tuple(pieces), landing=all_of(landings)
        )
        self._fill(snapshot)
        if self._passes(snapshot):
            self._queue.put(snapshot)
        else:
            self._drop(region, snapshot.landing, len(snapshot.filled.result().places))

    def _forget(self, pieces: Sequence[SavePiece]) -> None:
        """Their rows would take the place of others."""
        if self._rows is not None:
            self._rows.forget([block for piece in pieces for block in piece.block_ids])

    def _drop(self, region: Region, landing: Landing, chunk_count: int) -> None:
        """The region is free when the copies are over, however they ended."""
        with suppress(Exception):
            landing.wait()
        region.release()
        self._tally.add("dropped_saves", chunk_count)

    def _fill(self, snapshot: Snapshot) -> None:
        """Has the gathered layer inputs copied of the pieces that are complete."""
        if self._rows is None:
            snapshot.filled.set_result(Filled(tuple(range(len(snapshot.pieces)))))
            return
        is_tried = self._check is not None

        def fill(rows: BlockRows) -> None:
            places: list[int] = []
            first_rows: tuple[Tensor, ...] = ()
            try:
                for place, piece in enumerate(snapshot.pieces):
                    blocks = rows.take(piece.block_ids)
                    if blocks is None:
                        continue
                    self._copy_inputs(blocks, snapshot.memory[:, place])
                    if is_tried and not places:
                        first_rows = tuple(blocks)
                    places.append(place)
            finally:
                self._tally.add("dropped_saves", len(snapshot.pieces) - len(places))
                snapshot.filled.set_result(Filled(tuple(places), first_rows))

        self._rows.use(fill)

    def _copy_inputs(self, blocks: Sequence[Tensor], memory: Tensor) -> None:
        """Copies this rank's columns of ``blocks``, each [layer_count, block_tokens, width]."""
        for number, layer in enumerate(layers_of(self._layout, StateKind.HIDDEN)):
            token_bytes = self._layout.layers[layer].token_bytes
            # The bytes of a layer input that this rank stores (HCache, section 5).
            first_byte = self._layout.shard.tensor_rank * token_bytes
            rows = memory[layer, : self._layout.slice_bytes(layer)].view(-1, token_bytes)
            first = 0
            for block in blocks:
                inputs = block[number].view(torch.uint8)
                stop = first + len(inputs)
                rows[first:stop] = inputs[:, first_byte : first_byte + token_bytes]
                first = stop

    def _passes(self, snapshot: Snapshot) -> bool:
        """Whether what is stored can be restored: the first chunk of all is tried."""
        if self._check is None:
            return True
        filled = snapshot.filled.result()
        if not filled.places:
            return True
        check, self._check = self._check, None
        first = snapshot.pieces[filled.places[0]]
        try:
            snapshot.landing.wait()
            check.compare(self._whole(snapshot, filled), first.index, first.block_ids)
        except Exception as error:
            # Whatever a model of another kind raises: nothing of it may be stored.
            self._is_off = True
            self._give_up()
            LOGGER.warning(
                "kvstored saves nothing: layer inputs of this model do not give its keys and "
                "values back (%s); use mode prefix or cake",
                error,
            )
        return not self._is_off

    def _whole(self, snapshot: Snapshot, filled: Filled) -> Callable[[int], Tensor]:
        """The slices of the first chunk, with whole layer inputs where ranks store columns."""
        hidden = layers_of(self._layout, StateKind.HIDDEN)

        def slices_of(layer: int) -> Tensor:
            if self._layout.shard.tensor_size > 1 and layer in hidden:
                number = hidden.index(layer)
                inputs = torch.cat([block[number] for block in filled.first_rows])
                return inputs.view(torch.uint8).reshape(1, -1)
            slice_bytes = self._layout.slice_bytes(layer)
            return snapshot.memory[layer, filled.places[0] :, :slice_bytes]

        return slices_of

    def _pin(self) -> None:
        """Once for each session, of which every one has memory of its own.

        Memory that cannot be pinned is copied from all the same.
        """
        epoch = self._client.epoch
        if epoch != self._pinned_epoch and (memory := self._client.arena_memory) is not None:
            self._pinned_epoch = epoch
            try:
                self._blocks.copies.pin(memory)
            except Exception:
                LOGGER.exception("kvstored: memory of the store is not pinned, so saves are slower")

    def _run(self) -> None:
        while True:
            self._pin()
            try:
                snapshot = self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                if not self._client.epoch:
                    self._client.available()
                    self._count_disconnections()
                continue
            if snapshot is None:
                self._queue.task_done()
                return
            try:
                self._put(snapshot)
            except Exception:
                LOGGER.exception("kvstored: a save failed and is dropped")
                self._tally.add("dropped_saves", len(snapshot.filled.result().places))
            finally:
                snapshot.region.release()
                self._queue.task_done()
                # The memory of a session that ended is not kept until the next save.
                del snapshot

    def _count_disconnections(self) -> None:
        for name, count in self._disconnections.take().items():
            self._tally.add(name, count)

    def _put(self, snapshot: Snapshot) -> None:
        snapshot.landing.wait()
        for run in runs_of(snapshot.filled.result().places):
            try:
                self._put_run(snapshot, run)
            except Exception:
                LOGGER.exception("kvstored: a save failed and is dropped")
                self._tally.add("dropped_saves", len(run))

    def _put_run(self, snapshot: Snapshot, places: range) -> None:
        section = whole_section(self._layout)
        report: PutReport = self._client.put(
            self._layout,
            with_notes_that_fit([snapshot.pieces[place].chunk for place in places]),
            placement_of(
                section,
                snapshot.region,
                places.start * section.slice_stride,
                len(snapshot.pieces),
            ),
            ack=Ack.STAGED,
            timeout_ms=PUT_TIMEOUT_MS,
        )
        # Each worker has saved its share of these tokens.
        saved_tokens = report.stored_count * self._layout.chunk_tokens
        self._tally.add("saved_tokens", saved_tokens / self._worker_count)
        self._tally.add("dropped_saves", report.rejected_count)
        rejections = (each for each in report.results if each.outcome is PutOutcome.REJECTED)
        self._tell({each.reason for each in rejections})

    def _tell(self, reasons: set[Reason]) -> None:
        """Says each reason once: the counter tells of how many chunks it holds."""
        for reason in sorted(reasons - self._told_reasons):
            LOGGER.warning(
                "kvstored: a save is dropped (%s); the metric dropped_saves counts the chunks of "
                "all that are",
                reason.name if reason else "the daemon did not answer",
            )
        self._told_reasons |= reasons
