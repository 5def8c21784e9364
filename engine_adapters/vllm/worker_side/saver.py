"""Saves complete chunks: one copy on the engine's thread, everything else after it."""

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine_adapters.device_copies.landing import Landing, all_of
from engine_adapters.reading.section import whole_section
from engine_adapters.reading.section_reads import placement_of
from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.blocks.projection_check import ProjectionCheck
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.orders import SaveOrder
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.disconnections import Disconnections
from kvstored_client import (
    Ack,
    Client,
    NewChunk,
    PutOutcome,
    PutReport,
    Reason,
    Region,
    StateKind,
    StateLayout,
)
from kvstored_contract.limits import NOTES_BYTES_PER_CALL_MAX

LOGGER = logging.getLogger("vllm.kvstored")
QUEUED_MAX = 64
"""Snapshots that wait for the daemon; while so many do, saves are dropped."""
PUT_TIMEOUT_MS = 5000
LOOK_S = 1.0
"""How often a saver with nothing to put looks whether there is a session."""
DRAIN_S = 10.0
"""Longest that the end of the engine waits for saves on their way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Chunks on their way to the arena, to be put."""

    region: Region
    chunks: tuple[NewChunk, ...]
    landing: Landing
    """The region's bytes are those of the chunks when it is over."""


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
        rows: BlockRows | None = None,
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
        pieces = [piece for order in orders for piece in self._complete(order)]
        for first in range(0, len(pieces), self._span_chunks):
            self._snapshot(pieces[first : first + self._span_chunks])

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

    def _complete(self, order: SaveOrder) -> list["_Piece"]:
        """The chunks of an order of which every state is at hand."""
        pieces = _pieces(order, self._layout)
        if self._rows is None:
            return pieces
        complete = []
        for piece in pieces:
            rows = self._rows.take(piece.block_ids)
            if rows is None:
                self._tally.add("dropped_saves", 1)
            else:
                complete.append(replace(piece, rows=torch.cat(rows, dim=1)))
        return complete

    def _snapshot(self, pieces: Sequence["_Piece"]) -> None:
        # No session, no call: connecting could block, and belongs to the thread.
        section, region = whole_section(self._layout), None
        if self._client.epoch and self._queue.qsize() < QUEUED_MAX:
            region = self._client.allocate(section.region_bytes(len(pieces)), connects=False)
        if region is None:
            self._tally.add("dropped_saves", len(pieces))
            return
        memory = region.tensor(
            torch.uint8, (section.layer_count, len(pieces), section.slice_stride)
        )

        def slices_of(layer: int) -> Tensor:
            return memory[layer, :, : self._layout.slice_bytes(layer)]

        landings: list[Landing] = []
        is_kept = not self._is_off
        try:
            for layer in range(self._layout.layer_count):
                landings += self._take(layer, pieces, slices_of(layer))
        except torch.OutOfMemoryError as error:
            LOGGER.warning("kvstored: a save is dropped: %s", error)
            is_kept = False
        landing = all_of(landings)
        if not (is_kept and self._passes(slices_of, pieces[0], landing)):
            # The region is free when the copies are over, however they ended.
            with suppress(Exception):
                landing.wait()
            region.release()
            self._tally.add("dropped_saves", len(pieces))
            return
        self._queue.put(
            Snapshot(
                region=region,
                chunks=with_notes_that_fit([piece.chunk for piece in pieces]),
                landing=landing,
            )
        )

    def _take(self, layer: int, pieces: Sequence["_Piece"], slices: Tensor) -> Iterator[Landing]:
        """Begins to copy the states of a layer."""
        if self._layout.layers[layer].kind is StateKind.KV:
            ids = [block for piece in pieces for block in piece.block_ids]
            yield self._blocks.gather(layer, ids, slices)
            return
        place = self._place_of(layer)
        for target, piece in zip(slices, pieces, strict=True):
            rows = piece.inputs(place)[:, self._columns(layer)].contiguous()
            yield self._blocks.copies.fetch((rows.view(-1),), target)

    def _place_of(self, layer: int) -> int:
        """Which of the gathered layers it is."""
        kinds = [state.kind for state in self._layout.layers[:layer]]
        return kinds.count(StateKind.HIDDEN)

    def _columns(self, layer: int) -> slice:
        """The bytes of a layer input that this rank stores (HCache, section 5)."""
        token_bytes = self._layout.layers[layer].token_bytes
        first = self._layout.shard.tensor_rank * token_bytes
        return slice(first, first + token_bytes)

    def _passes(
        self, slices_of: Callable[[int], Tensor], first: "_Piece", landing: Landing
    ) -> bool:
        """Whether what is stored can be restored: the first chunk of all is tried."""
        check, self._check = self._check, None
        if check is None:
            return True
        try:
            landing.wait()
            check.compare(self._whole(slices_of, first), first.index, first.block_ids)
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

    def _whole(
        self, slices_of: Callable[[int], Tensor], first: "_Piece"
    ) -> Callable[[int], Tensor]:
        """The slices of a chunk, with whole layer inputs where this rank stores columns of them."""
        if self._layout.shard.tensor_size == 1:
            return slices_of

        def whole_of(layer: int) -> Tensor:
            if self._layout.layers[layer].kind is StateKind.KV:
                return slices_of(layer)
            return first.inputs(self._place_of(layer)).reshape(1, -1)

        return whole_of

    def _pin(self) -> None:
        """Once for each session, of which every one has memory of its own."""
        epoch = self._client.epoch
        if epoch != self._pinned_epoch and (memory := self._client.arena_memory) is not None:
            self._blocks.copies.pin(memory)
            self._pinned_epoch = epoch

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
                self._tally.add("dropped_saves", len(snapshot.chunks))
            finally:
                snapshot.region.release()
                self._queue.task_done()

    def _count_disconnections(self) -> None:
        for name, count in self._disconnections.take().items():
            self._tally.add(name, count)

    def _put(self, snapshot: Snapshot) -> None:
        snapshot.landing.wait()
        report: PutReport = self._client.put(
            self._layout,
            snapshot.chunks,
            placement_of(whole_section(self._layout), snapshot.region, 0, len(snapshot.chunks)),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Chunk ``index`` of its request.

    ``rows`` are its layer inputs [layer_count, chunk_tokens, width].
    """

    index: int
    chunk: NewChunk
    block_ids: tuple[int, ...]
    rows: Tensor | None = None

    def inputs(self, place: int) -> Tensor:
        """Of one of the gathered layers, as bytes [chunk_tokens, row_bytes]."""
        assert self.rows is not None, "only complete chunks are taken"
        return self.rows[place].view(torch.uint8)


def _pieces(order: SaveOrder, layout: StateLayout) -> list[_Piece]:
    blocks = len(order.block_ids) // len(order.chain_keys)
    parents = (order.parent_key, *order.chain_keys)
    return [
        _Piece(
            index=order.first_chunk + index,
            chunk=NewChunk(
                key=rank_key(key, layout.layout_id),
                parent_key=rank_key(parent, layout.layout_id) if parent else b"",
                token_count=layout.chunk_tokens,
                stripe=order.first_chunk + index,
                note=order.notes[index] if order.notes else b"",
            ),
            block_ids=order.block_ids[index * blocks : (index + 1) * blocks],
        )
        for index, (key, parent) in enumerate(zip(order.chain_keys, parents, strict=False))
    ]


def with_notes_that_fit(chunks: Sequence[NewChunk]) -> tuple[NewChunk, ...]:
    """The chunks of one put, those in front with their notes: as many as one call takes."""
    left_bytes, fitting = NOTES_BYTES_PER_CALL_MAX, []
    for chunk in chunks:
        left_bytes -= len(chunk.note)
        fitting.append(chunk if left_bytes >= 0 else replace(chunk, note=b""))
    return tuple(fitting)
