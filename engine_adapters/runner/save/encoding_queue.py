"""Encodes chunks on a background thread and puts them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_adapters.codecs.errors import StatesError
from engine_adapters.runner.save.save_queue import Rows, SavedSequence, SaveQueue, SaveReport
from engine_adapters.runner.save.snapshot import Snapshot, token_axis
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Ack, Client, NewChunk, Placement, PutOutcome, Region, StateKind

PUT_BYTES = 8 * 1024 * 1024
"""Arena bytes of the chunks of one put, unless a single one has more."""

PUT_SHARE = 8
"""The same as one part in so many of the arena: snapshots of steps need room too."""

_STRIPE_BYTES = 4


class OpenChunk:
    """The states of a chunk on its way to completion: decoded slices, None of NONE layers."""

    def __init__(self, state_format: StateFormat) -> None:
        self._chunk_tokens = state_format.states.chunk_tokens
        self.token_count = 0
        self.slices = tuple(
            None
            if state.kind is StateKind.NONE
            else torch.empty(state_format.slice_shape(layer), dtype=state_format.dtype)
            for layer, state in enumerate(state_format.states.layers)
        )

    @property
    def is_complete(self) -> bool:
        """Whether it has all of its tokens."""
        return self.token_count == self._chunk_tokens

    def add(self, snapshot: Snapshot, first_row: int, row_count: int) -> int:
        """Takes rows ``first_row`` on, as far as there is room; how many."""
        count = min(row_count, self._chunk_tokens - self.token_count)
        for layer, states in enumerate(self.slices):
            if states is not None:
                axis = token_axis(states.shape)
                rows = snapshot.rows(layer).narrow(axis, first_row, count)
                states.narrow(axis, self.token_count, count).copy_(rows)
        self.token_count += count
        return count

    def filled(self) -> tuple[Tensor | None, ...]:
        """The slices of the tokens that it has."""
        return tuple(
            None if states is None else states.narrow(token_axis(states.shape), 0, self.token_count)
            for states in self.slices
        )

    def clear(self) -> None:
        """Begins the next chunk."""
        self.token_count = 0


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A chunk in the region of the next put."""

    sequence: SavedSequence
    chunk: NewChunk


class EncodingQueue(SaveQueue):
    """Gathers rows into chunks and encodes these: for layouts with a codec.

    The daemon takes a chunk of theirs as a whole. The queue holds an open chunk of states
    for each sequence, and one region of the arena for the chunks of the next put. While
    steps wait these are gathered there, so that a queue that is behind makes fewer puts.
    An open chunk that is not complete in the end is put only of a sequence that keeps its tail.
    """

    def __init__(self, client: Client, state_format: StateFormat) -> None:
        super().__init__(client, state_format.layout)
        assert state_format.codec is not None
        self._format = state_format
        self._codec = state_format.codec
        self._open_chunks: dict[SavedSequence, OpenChunk] = {}
        self._batch: list[_Encoded] = []
        self._region: Region | None = None
        self._room = 0

    def finish(self) -> SaveReport:
        """As ``SaveQueue``."""
        self._submit(self._put)
        return super().finish()

    def close(self) -> None:
        """As ``SaveQueue``; gives the region back."""
        try:
            super().close()
        finally:
            self._release()

    def _open(self, sequence: SavedSequence) -> None:
        """Here the arena is likely to have room for the region: later snapshots fill it."""
        self._reserve()
        if sequence.first_token % self._layout.chunk_tokens:
            # Of its first chunk only some rows would come.
            sequence.is_stopped = True

    def _append(self, snapshot: Snapshot, rows: Sequence[Rows]) -> None:
        waiting = list(rows)
        try:
            snapshot.settle()
            while waiting:
                self._gather(snapshot, waiting.pop(0))
        except BaseException:
            # Their sequences are stopped by the gap.
            self.count_dropped(sum(part.token_count for part in waiting))
            raise
        finally:
            snapshot.region.release()
        if self._batch:
            # After the steps that wait already: their chunks are put as well.
            self._submit(self._put)

    def _close_sequence(self, sequence: SavedSequence) -> None:
        chunk = self._open_chunks.get(sequence)
        try:
            if chunk is not None and chunk.token_count and sequence.keeps_tail:
                self._encode(sequence, chunk, sequence.length_tokens)
                self._put()
        except BaseException:
            self._stop(sequence)
            raise
        finally:
            self._open_chunks.pop(sequence, None)

    def _gather(self, snapshot: Snapshot, part: Rows) -> None:
        """Adds the rows of one sequence; encodes what they complete."""
        sequence, taken = part.sequence, 0
        if part.first_token != sequence.length_tokens:
            # Rows before these never came: a chunk with a gap would hold other tokens' states.
            self._stop(sequence)
        try:
            while taken < part.token_count and not sequence.is_stopped:
                chunk = self._open_chunks.get(sequence)
                if chunk is None:
                    chunk = self._open_chunks[sequence] = OpenChunk(self._format)
                taken += chunk.add(snapshot, part.first_row + taken, part.token_count - taken)
                sequence.length_tokens = part.first_token + taken
                if chunk.is_complete:
                    self._encode(sequence, chunk, part.first_token + taken)
        except BaseException:
            self._stop(sequence)
            raise
        finally:
            self.count_dropped(part.token_count - taken)

    def _encode(self, sequence: SavedSequence, chunk: OpenChunk, stop_token: int) -> None:
        """Puts a chunk, which ends before ``stop_token``, into the next batch."""
        keys = self._keys(sequence, stop_token)
        if not chunk.is_complete:
            keys = [*keys, self._tail_key(sequence, stop_token)]
        index = (stop_token - 1) // self._layout.chunk_tokens
        region = self._reserve()
        if sequence.is_stopped:
            # By the put of an old region: an earlier chunk is lost, and this one with it.
            return
        if len(keys) <= index or not keys[index] or region is None:
            self._stop(sequence)
            return
        try:
            payloads = self._codec.encode(chunk.filled())
        except StatesError:
            # The codec cannot bound these states: a later turn computes them again.
            self._stop(sequence)
            return
        self._codec.place(payloads, region.view, len(self._batch))
        new = NewChunk(
            key=keys[index],
            parent_key=keys[index - 1] if index else b"",
            token_count=chunk.token_count,
            stripe=int.from_bytes(keys[0][:_STRIPE_BYTES], "little") + index,
            slice_bytes=self._codec.slice_bytes(payloads),
        )
        chunk.clear()
        self._batch.append(_Encoded(sequence, new))
        if len(self._batch) == self._room:
            self._put()

    def _put(self) -> None:
        """Makes the batch durable; what is rejected stops its sequence.

        What is only staged when the time is over is saved: it becomes durable after that.
        """
        batch, self._batch = self._batch, []
        if not batch:
            return
        assert self._region is not None
        source = Placement.contiguous(self._region, self._layout)
        chunks = [encoded.chunk for encoded in batch]
        try:
            report = self._client.put(self._layout, chunks, source, ack=Ack.DURABLE)
        except BaseException:
            for encoded in batch:
                self.count_dropped(encoded.chunk.token_count)
                self._stop(encoded.sequence)
            raise
        lost: set[SavedSequence] = set()
        for encoded, result in zip(batch, report.results, strict=True):
            if result.outcome is PutOutcome.REJECTED:
                lost.add(encoded.sequence)
            if encoded.sequence in lost:
                self.count_dropped(encoded.chunk.token_count)
                self._stop(encoded.sequence)
            else:
                late = result.outcome is PutOutcome.STAGED
                token_count = encoded.chunk.token_count
                self._count_saved(token_count, late_tokens=token_count * late)

    def _stop(self, sequence: SavedSequence) -> None:
        """Nothing more is saved of a sequence; its open chunk is lost."""
        sequence.is_stopped = True
        chunk = self._open_chunks.pop(sequence, None)
        if chunk is not None:
            self.count_dropped(chunk.token_count)

    def _reserve(self) -> Region | None:
        """The region of the next put, with room for one more chunk; None where there is none."""
        if self._region is not None and not self._region.is_current:
            self._put()
            self._release()
        if self._region is None:
            put_bytes = min(PUT_BYTES, self._client.region_bytes_max // PUT_SHARE)
            self._room = max(1, put_bytes // self._format.region_bytes(1))
            while self._region is None and self._room:
                self._region = self._client.allocate(self._format.region_bytes(self._room))
                self._room = self._room if self._region is not None else self._room // 2
        return self._region

    def _release(self) -> None:
        if self._region is not None:
            self._region.release()
        self._region = None
