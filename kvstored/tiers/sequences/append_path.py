"""The write path of steps: rows of many sequences to their open chunks, full ones sealed.

The second of HCache's two stages (section 4.2.2): what the engine has snapshotted in one
copy is sorted into chunks here, and each chunk is written as a whole.
"""

import logging
import time
from dataclasses import replace

import numpy as np

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.store.sequences.rules import (
    SEQUENCE_CHUNKS_MAX,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.store.write.append_rows import RowBlock, chunk_rows, row_blocks
from kvstored.store.write.row_copies import copy_rows
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import OpenFrame
from kvstored.tiers.chunks.requests import (
    ROOM_WAIT_S,
    AppendItem,
    AppendOutcome,
    AppendRequest,
    NewChunk,
    PutOutcome,
    PutTicket,
)
from kvstored.tiers.chunks.stager import Stager, WantedChunk
from kvstored.tiers.sequences.joint_wait import HELD_WAIT_S, JointWait, Steps
from kvstored.tiers.sequences.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.sequences.open_sequences import OpenSequences
from kvstored.tiers.sequences.placed_rows import PlacedRows
from kvstored.tiers.sequences.sequence_recorder import SequenceRecorder
from kvstored.tiers.sequences.tail_frames import TailFrames, TailLoad
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)
LOAD_SHARE = 0.5
"""Part of the time that is left for which one of several items may read a tail that did not match
once more, and wait for room."""
LOST = frozenset({Reason.NOT_STORED, Reason.CHECKSUM})
"""What tells that a flushed tail will not come back."""

Tail = TailLoad | OpenFrame | Reason
"""A flushed tail that is on its way, or has come, or does not."""


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

        One outcome for each item. An item is copied whole or not at all: where DRAM has no room at
        once its rows are dropped and the sequence is stopped where it was, until somebody appends
        at exactly that length. A sequence that somebody else changes until the deadline takes
        nothing either, nor does one whose flushed tail is not read by then; no other item waits for
        it, and all tails are read together. Never waits for room in DRAM. Complete chunks wait for
        room on the devices until the deadline, those of all items that are taken together at most
        ROOM_WAIT_S; the sequence ends before one that finds none by then. Raises LayoutError for a
        layout whose keys and values have no halves, and IndexFailure.
        """
        blocks = row_blocks(request.layout, request.row_count)
        identities = [
            self._sequences.resolve(request.namespace_id, request.session_id, item.name)
            for item in request.items
        ]
        wanted = dict(enumerate(identities))
        # First all that waits for nobody: the wait for the others takes no time from it.
        found = self._append_ready(request, blocks, wanted, 0.0)
        # Whose sequence somebody only looked at waits for no tail of others, either. All of these
        # together are waited for as long as one is.
        wait_until = time.monotonic() + HELD_WAIT_S
        for place in sorted(wanted.keys() - found.keys()):
            try:
                found |= self._append_ready(request, blocks, {place: wanted[place]}, wait_until)
            except Exception:
                found[place] = self._failed(wanted[place], request.items[place])
        rest = sorted(wanted.keys() - found.keys())
        joint: JointWait[AppendOutcome] = JointWait(request.deadline)
        found |= joint.run(
            rest,
            lambda place, until: self._append_steps(
                request, blocks, place, wanted[place], until, joint
            ),
        )
        outcomes = [
            found.get(place) or self._refused(identity, request.items[place], Reason.DEADLINE)
            for place, identity in wanted.items()
        ]
        self._count(request, outcomes)
        return outcomes

    def _append_ready(
        self,
        request: AppendRequest,
        blocks: tuple[RowBlock, ...],
        wanted: dict[int, SequenceId],
        wait_until: float,
    ) -> dict[int, AppendOutcome]:
        """Appends the items at these places but those whose sequence is held until then.

        Also without those whose tail has to be read from a device.
        """
        wait_until = min(request.deadline, wait_until)
        with self._sequences.held_if_free(wanted.values(), wait_until) as held:
            ready = [sequence for sequence in held if not self._needs_load(sequence)]
            return self._append_to(ready, request, blocks, wanted, {})

    def _append_steps(
        self,
        request: AppendRequest,
        blocks: tuple[RowBlock, ...],
        place: int,
        identity: SequenceId,
        wait_until: float,
        joint: JointWait[AppendOutcome],
    ) -> Steps[AppendOutcome]:
        """Appends one item, whose sequence is held meanwhile; None where somebody else holds it."""
        tails: dict[SequenceId, Tail] = {}
        try:
            wait_until = min(request.deadline, wait_until)
            with self._sequences.held_if_free([identity], wait_until) as held:
                for sequence in held:
                    begun = self._begin_tail(sequence, request.items[place], request)
                    if begun is not None:
                        tails[identity] = begun
                    if isinstance(begun, TailLoad):
                        yield begun.landed
                    now = time.monotonic()
                    share = 1 if joint.is_alone else LOAD_SHARE
                    own = replace(request, deadline=now + share * (request.deadline - now))
                    return self._append_to(held, own, blocks, {place: identity}, tails)[place]
        except Exception:
            return self._failed(identity, request.items[place])
        finally:
            for unused in tails.values():
                self._tails.give_up(unused)
        return None

    def _append_to(
        self,
        held: list[OpenSequence],
        request: AppendRequest,
        blocks: tuple[RowBlock, ...],
        wanted: dict[int, SequenceId],
        tails: dict[SequenceId, Tail],
    ) -> dict[int, AppendOutcome]:
        """Appends to held sequences the items at these places that are theirs.

        Takes from ``tails`` what it uses.
        """
        deadline = min(request.deadline, time.monotonic() + ROOM_WAIT_S)
        sequences = {sequence.identity: sequence for sequence in held}
        placed: dict[int, PlacedRows | AppendOutcome] = {}
        try:
            for place, identity in wanted.items():
                if (sequence := sequences.get(identity)) is not None:
                    placed[place] = self._place(sequence, request.items[place], request, tails)
            ready = [one for one in placed.values() if isinstance(one, PlacedRows)]
            copy_rows(
                snapshot=np.frombuffer(request.source, np.uint8),
                memory=self._dram.space.memory,
                blocks=blocks,
                ranges=[rows for one in ready for rows in one.ranges],
            )
            return {
                place: self._seal_full(one, deadline) if isinstance(one, PlacedRows) else one
                for place, one in placed.items()
            }
        except BaseException:
            for one in placed.values():
                self._close(one.new_frames if isinstance(one, PlacedRows) else [])
            raise

    def _begin_tail(
        self, sequence: OpenSequence, item: AppendItem, request: AppendRequest
    ) -> Tail | None:
        """Asks for the flushed tail of a held sequence; None where the item needs none."""
        if not self._needs_load(sequence):
            return None
        state = sequence.known
        if state.layout_id != request.layout.layout_id or item.first_token != state.length_tokens:
            return None
        return self._ask_for_tail(sequence, request)

    def _ask_for_tail(self, sequence: OpenSequence, request: AppendRequest) -> Tail:
        state = sequence.known
        assert state.flushed is not None
        chunk = ChunkId(sequence.identity.namespace_id, state.flushed.key)
        return self._tails.begin(
            chunk, request.layout, state.tail_tokens, deadline=request.deadline
        )

    def _needs_load(self, sequence: OpenSequence) -> bool:
        """Whether the tail of a held sequence is flushed and lies in no frame."""
        try:
            state = self._sequences.look_up(sequence)
        except SequenceUnknownError:
            return False
        return bool(state.tail_tokens) and sequence.frame is None

    def _failed(self, identity: SequenceId, item: AppendItem) -> AppendOutcome:
        """Of an item that raised: others may be taken already, and have to be answered."""
        LOGGER.exception("rows of a sequence cannot be taken")
        return self._refused(identity, item, Reason.INTERNAL)

    def _refused(self, identity: SequenceId, item: AppendItem, reason: Reason) -> AppendOutcome:
        """What becomes of an item that was not taken; the sequence may be held by others."""
        state = self._sequences.glance(identity)
        return AppendOutcome(item.first_token if state is None else state.length_tokens, reason)

    def _place(
        self,
        sequence: OpenSequence,
        item: AppendItem,
        request: AppendRequest,
        tails: dict[SequenceId, Tail],
    ) -> PlacedRows | AppendOutcome:
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
        if item.first_token != state.length_tokens or sequence.is_anothers(request.session_id):
            return AppendOutcome(state.length_tokens, Reason.SEQUENCE_CONFLICT)
        if len(state.keys) + len(item.keys) > SEQUENCE_CHUNKS_MAX:
            return AppendOutcome(state.length_tokens, Reason.LIMIT_EXCEEDED)
        try:
            chunk_count = len(state.keys) + len(item.keys)
            self._sequences.own(sequence, request.session_id, chunk_count)
        except SequenceLimitError:
            return AppendOutcome(state.length_tokens, Reason.LIMIT_EXCEEDED)
        reason = self._open_tail(sequence, request, tails.pop(sequence.identity, None))
        if reason is not Reason.UNSPECIFIED:
            return AppendOutcome(sequence.known.length_tokens, reason)
        parts = (
            *chunk_rows(
                first_token=item.first_token,
                first_row=item.first_row,
                token_count=item.token_count,
                chunk_tokens=layout.chunk_tokens,
            ),
        )
        frames = self._open_frames(len(parts), sequence, layout)
        if frames is None:
            sequence.state = state.stopped()
            return AppendOutcome(state.length_tokens, Reason.DRAM_FULL)
        return PlacedRows(sequence, item, parts, frames)

    def _with_layout(self, sequence: OpenSequence, layout: StateLayout) -> SequenceState:
        """Looks a sequence up whose layout the index did not know."""
        sequence.layout = layout
        sequence.state = SequenceState.of_record(sequence.known.record(), layout.chunk_tokens)
        return sequence.state

    def _open_tail(
        self,
        sequence: OpenSequence,
        request: AppendRequest,
        begun: Tail | None,
    ) -> Reason:
        """Makes sure that a tail lies in an open frame; ends its load, or loads it from here.

        A tail that is not stored or damaged is a miss: the sequence ends with its last chunk
        then, durably. One that cannot be read now only stops the sequence.
        """
        state = sequence.known
        if not state.tail_tokens or sequence.frame is not None:
            return Reason.UNSPECIFIED
        # Where the index did not know the layout, nobody could begin before.
        loaded = begun or self._ask_for_tail(sequence, request)
        if isinstance(loaded, TailLoad):
            loaded = self._tails.end(loaded, request.deadline)
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
        self, count: int, sequence: OpenSequence, layout: StateLayout
    ) -> list[OpenFrame] | None:
        """A frame for each chunk, the first of them the tail's if there is one."""
        frames = [] if sequence.frame is None else [sequence.frame]
        tail_count = len(frames)
        while len(frames) < count:
            frame = self._dram.open_frames.open(layout, sequence.identity.namespace_id)
            if frame is None:
                self._close(frames[tail_count:])
                return None
            frames.append(frame)
        return frames

    def _close(self, frames: list[OpenFrame]) -> None:
        for frame in frames:
            self._dram.open_frames.close(frame)

    def _seal_full(self, placed: PlacedRows, deadline: float) -> AppendOutcome:
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
                ticket = self._stage(sequence, frames.pop(0), new, deadline)
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

    def _stage(
        self, sequence: OpenSequence, opened: OpenFrame, new: NewChunk, deadline: float
    ) -> PutTicket:
        """Stages one complete chunk; its frame is the tier's afterwards, or given back."""
        wanted = WantedChunk(
            chunk=ChunkId(sequence.identity.namespace_id, new.key),
            new=new,
            layout=opened.layout,
            deadline=deadline,
            frame_deadline=deadline,
        )
        try:
            return self._stager.adopt(wanted, opened)
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
