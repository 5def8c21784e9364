"""The write path of steps: rows of many sequences to their open chunks, full ones sealed.

The second of HCache's two stages (section 4.2.2): what the engine has snapshotted in one
copy is sorted into chunks here, and each chunk is written as a whole.
"""

import logging
import time
from dataclasses import dataclass

import numpy as np

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.store.append_rows import Piece, pieces, row_blocks
from kvstored.store.row_copies import RowRun, copy_rows
from kvstored.store.sequence_state import SequenceState
from kvstored.store.sequence_table import SequenceStorageError
from kvstored.store.sequences import (
    SEQUENCE_CHUNKS_MAX,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored.tiers.dram import DramTier, OpenFrame
from kvstored.tiers.open_sequence import OpenSequence
from kvstored.tiers.open_sequences import OpenSequences
from kvstored.tiers.requests import (
    AppendItem,
    AppendOutcome,
    AppendRequest,
    NewChunk,
    PutOutcome,
    PutTicket,
)
from kvstored.tiers.sequence_recorder import SequenceRecorder
from kvstored.tiers.stager import Stager, already_durable, seal_frame
from kvstored.tiers.tail_frames import TailFrames
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)
LOST = frozenset({Reason.NOT_STORED, Reason.CHECKSUM})
"""What tells that a flushed tail will not come back."""


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """An item with a frame for each of its pieces; the first may be the open tail's own."""

    sequence: OpenSequence
    item: AppendItem
    pieces: tuple[Piece, ...]
    frames: list[OpenFrame]

    @property
    def new_frames(self) -> list[OpenFrame]:
        """Those that were opened for this item."""
        return [frame for frame in self.frames if frame is not self.sequence.frame]


class AppendPath:
    """Adds rows to open sequences. Thread-safe."""

    def __init__(
        self,
        *,
        sequences: OpenSequences,
        recorder: SequenceRecorder,
        tails: TailFrames,
        dram: DramTier,
        stager: Stager,
        counters: Counters,
    ) -> None:
        self._sequences = sequences
        self._recorder = recorder
        self._tails = tails
        self._dram = dram
        self._stager = stager
        self._counters = counters

    def append(self, request: AppendRequest) -> list[AppendOutcome]:
        """Copies the rows of every item, and stages the chunks that are complete then.

        One outcome for each item. An item is copied whole or not at all: where DRAM has no
        room at once its rows are dropped and the sequence is stopped where it was, until
        somebody appends at exactly that length. Never waits for room in DRAM; complete
        chunks may wait for evictions on the devices. Raises LayoutError for a layout whose
        keys and values have no halves, and IndexFailure.
        """
        blocks = row_blocks(request.layout, request.row_count)
        identities = [
            self._sequences.resolve(request.namespace_id, request.session_id, item.name)
            for item in request.items
        ]
        with self._sequences.held(identities) as held:
            placed: list[_Placed | AppendOutcome] = []
            try:
                for identity, item in zip(identities, request.items, strict=True):
                    placed.append(self._place(held[identity], item, request))
                copy_rows(
                    snapshot=np.frombuffer(request.source, np.uint8),
                    memory=self._dram.memory,
                    blocks=blocks,
                    runs=[run for one in placed if isinstance(one, _Placed) for run in _runs(one)],
                )
                outcomes = [
                    self._seal_full(one) if isinstance(one, _Placed) else one for one in placed
                ]
            except BaseException:
                for one in placed:
                    self._close(one.new_frames if isinstance(one, _Placed) else [])
                raise
        self._count(request, outcomes)
        return outcomes

    def _place(
        self, sequence: OpenSequence, item: AppendItem, request: AppendRequest
    ) -> _Placed | AppendOutcome:
        """Finds frames for an item, all of them or none."""
        try:
            state = self._sequences.look_up(sequence)
        except SequenceUnknownError:
            return AppendOutcome(0, Reason.SEQUENCE_UNKNOWN)
        layout = request.layout
        if state.layout_id != layout.layout_id:
            return AppendOutcome(state.length_tokens, Reason.SEQUENCE_CONFLICT)
        if state.chunk_tokens == 0:
            state = self._with_layout(sequence, layout)
        if item.first_token != state.length_tokens:
            return AppendOutcome(state.length_tokens, Reason.SEQUENCE_CONFLICT)
        if len(state.keys) + len(item.keys) > SEQUENCE_CHUNKS_MAX:
            return AppendOutcome(state.length_tokens, Reason.LIMIT_EXCEEDED)
        try:
            chunk_count = len(state.keys) + len(item.keys)
            self._sequences.own(sequence, request.session_id, chunk_count)
        except SequenceLimitError:
            return AppendOutcome(state.length_tokens, Reason.LIMIT_EXCEEDED)
        reason = self._open_tail(sequence, layout)
        if reason is not Reason.UNSPECIFIED:
            return AppendOutcome(sequence.known.length_tokens, reason)
        parts = tuple(
            pieces(
                first_token=item.first_token,
                first_row=item.first_row,
                token_count=item.token_count,
                chunk_tokens=layout.chunk_tokens,
            )
        )
        frames = self._open_frames(len(parts), sequence.frame, layout)
        if frames is None:
            sequence.state = state.stopped()
            return AppendOutcome(state.length_tokens, Reason.DRAM_FULL)
        return _Placed(sequence, item, parts, frames)

    def _with_layout(self, sequence: OpenSequence, layout: StateLayout) -> SequenceState:
        """Looks a sequence up whose layout the index did not know."""
        sequence.layout = layout
        sequence.state = SequenceState.of_record(sequence.known.record(), layout.chunk_tokens)
        return sequence.state

    def _open_tail(self, sequence: OpenSequence, layout: StateLayout) -> Reason:
        """Makes sure that a tail lies in an open frame; loads the one that was flushed.

        A tail that is not stored or damaged is a miss: the sequence ends with its last chunk
        then, durably. One that cannot be read now only stops the sequence.
        """
        state = sequence.known
        if not state.tail_tokens or sequence.frame is not None:
            return Reason.UNSPECIFIED
        assert state.flushed is not None
        chunk = ChunkId(sequence.identity.namespace_id, state.flushed.key)
        loaded = self._tails.load(chunk, layout, state.tail_tokens)
        if isinstance(loaded, OpenFrame):
            sequence.frame = loaded
            return Reason.UNSPECIFIED
        if loaded not in LOST:
            sequence.state = state.stopped()
            return loaded
        try:
            self._sequences.store(sequence, state.cut(len(state.keys)).stopped())
        except SequenceStorageError as error:
            sequence.state = state.stopped()
            return error.reason
        return loaded

    def _open_frames(
        self, count: int, tail: OpenFrame | None, layout: StateLayout
    ) -> list[OpenFrame] | None:
        """A frame for each piece, the first of them the tail's if there is one."""
        frames = [] if tail is None else [tail]
        while len(frames) < count:
            frame = self._dram.open(layout)
            if frame is None:
                self._close(frames[tail is not None :])
                return None
            frames.append(frame)
        return frames

    def _close(self, frames: list[OpenFrame]) -> None:
        for frame in frames:
            self._dram.close(frame)

    def _seal_full(self, placed: _Placed) -> AppendOutcome:
        """Stages the chunks that are complete and keeps the frame of what is left.

        Takes the frames that it has given away out of ``placed``, whatever is raised; the
        sequence ends before the first chunk that is not staged then.
        """
        sequence, item, frames = placed.sequence, placed.item, placed.frames
        before = sequence.known
        state = before.extended(item.token_count, item.keys)
        sequence.state, sequence.frame = state, None
        index = len(before.keys)
        try:
            for index, key in enumerate(item.keys, start=len(before.keys)):
                new = NewChunk(
                    key=key,
                    parent_key=state.keys[index - 1] if index else b"",
                    token_count=state.chunk_tokens,
                    stripe=int.from_bytes(state.keys[0][:4], "little") + index,
                )
                ticket = self._stage(sequence, frames.pop(0), new)
                self._counters.add(f"append_{ticket.outcome.name.lower()}_chunks")
                if ticket.durable is None:
                    self._close(frames)
                    frames.clear()
                    sequence.state = state.ended_at(index)
                    return AppendOutcome(sequence.state.length_tokens, ticket.reason)
                self._recorder.watch(sequence, key, ticket.durable)
        except BaseException:
            # A chunk that nobody watches would be taken for durable.
            sequence.state = state.ended_at(index)
            raise
        if frames:
            (sequence.frame,) = frames
        return AppendOutcome(state.length_tokens)

    def _stage(self, sequence: OpenSequence, opened: OpenFrame, new: NewChunk) -> PutTicket:
        """Stages one complete chunk; its frame is the tier's afterwards, or given back."""
        chunk = ChunkId(sequence.identity.namespace_id, new.key)
        try:
            is_stored = self._stager.are_stored([chunk]) == [True]
            claim = (
                None
                if is_stored
                else self._stager.claim(chunk, lambda: self._dram.adopt(opened, chunk))
            )
        except Exception:
            LOGGER.exception("a chunk of a sequence cannot be stored")
            self._dram.close(opened)
            return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.INTERNAL)
        if claim is None or not claim.is_new:
            self._dram.close(opened)
            durable = already_durable() if claim is None else claim.frame.durable
            return PutTicket(outcome=PutOutcome.EXISTED, durable=durable)
        frame = claim.frame
        try:
            return self._stager.stage(
                frame,
                new,
                deadline=time.monotonic(),
                seal=lambda: seal_frame(frame, new, opened.layout),
            )
        except Exception:
            LOGGER.exception("a chunk of a sequence cannot be stored")
            return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.INTERNAL)

    def _count(self, request: AppendRequest, outcomes: list[AppendOutcome]) -> None:
        rows = dropped_rows = 0
        for item, outcome in zip(request.items, outcomes, strict=True):
            if outcome.reason is Reason.UNSPECIFIED:
                rows += item.token_count
            else:
                dropped_rows += item.token_count
        self._counters.add("append_requests")
        self._counters.add("append_rows", rows)
        self._counters.add("append_dropped_rows", dropped_rows)


def _runs(placed: _Placed) -> list[RowRun]:
    return [
        RowRun(frame.extent.offset, piece.first_token, piece.first_row, piece.token_count)
        for piece, frame in zip(placed.pieces, placed.frames, strict=True)
    ]
