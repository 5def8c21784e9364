"""Saves the states of running sequences in two stages: stage 1, and the way to stage 2."""

import secrets
from collections.abc import Sequence

import torch
from torch import Tensor

from engine_adapters.device_copies.open_copies import (
    gathered_bytes,
    gathered_steps,
    open_copies,
)
from engine_adapters.runner.model.step import Segment
from engine_adapters.runner.save.append_queue import AppendQueue
from engine_adapters.runner.save.encoding_queue import EncodingQueue
from engine_adapters.runner.save.held_steps import HeldSteps
from engine_adapters.runner.save.save_queue import Rows, SavedSequence, SaveQueue, SaveReport
from engine_adapters.runner.save.snapshot import Snapshot, stored_parts
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, SnapshotGeometry
from kvstored_contract.keys import Cut

_NAME_BYTES = 8
HELD_BYTES_MAX = 1 << 26
"""Of steps that wait on the device together, and of the copy that they make in the end."""
HELD_SHARE = 8
"""And no more than such a part of the arena."""
_CPU = torch.device("cpu")


class StateSaver:
    """A StateSink that never makes the engine wait and never raises because of the store.

    The states of all sequences of a step are copied into one region of the arena, layer by
    layer while later layers compute; one call, from a thread of its own, hands them to the
    daemon, which sorts the rows into chunks (HCache, section 4.2.2). On a GPU some steps of a
    decoding batch wait there and go together, before anything else does. When the arena is full
    the save of that step, or of these, is dropped as a whole; when the daemon's DRAM is, that of
    the sequences for which it finds no room, each of them as a whole. They end there, and a
    later turn computes everything after that again.

    With a codec that thread gathers the chunks and encodes them, and each put is of whole ones.

    A lost session is connected again by that thread; what is computed meanwhile is dropped.

    ``device`` is the model's. One thread only.
    """

    def __init__(
        self, client: Client, state_format: StateFormat, *, device: torch.device = _CPU
    ) -> None:
        self._client = client
        self._format = state_format
        self._copies = open_copies(device)
        self._gathered_bytes = gathered_bytes(device)
        self._held = HeldSteps(steps_max=gathered_steps(device))
        self._pinned_epoch = self._room_epoch = 0
        self._queue: SaveQueue
        if state_format.codec is None:
            self._queue = AppendQueue(client, state_format.layout)
        else:
            self._queue = EncodingQueue(client, state_format)
        # Here it may take its time; later a lost session is connected behind the engine's back.
        client.available()
        self._pin()
        self._queue.check_layout()
        # Names are only known to the session, but a client may have several savers.
        self._prefix = secrets.token_hex(_NAME_BYTES)
        self._sequences: dict[int, SavedSequence] = {}
        self._snapshot: Snapshot | None = None
        self._rows: list[Rows] = []

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Announces a sequence; ``stored_tokens`` must end on a chunk boundary."""
        if stored_tokens % self._format.layout.chunk_tokens:
            raise ValueError(f"{stored_tokens} stored tokens do not end on a chunk boundary")
        self._open(request_id, token_ids, stored_tokens)

    def begin_conversation(
        self,
        request_id: int,
        name: str,
        token_ids: Sequence[int],
        cuts: Sequence[Cut],
        stored_tokens: int,
        *,
        is_tail_stored: bool,
        keeps_tail: bool = False,
    ) -> None:
        """Announces a request whose states are those of the conversation ``name``.

        ``token_ids`` are all that it ever had. ``stored_tokens`` may end inside a chunk where the
        store's sequence does (``is_tail_stored``); else what is computed of that chunk is not
        saved. One that ``keeps_tail`` is no conversation and ends with the request: its last tokens
        are saved with a codec, too, though they complete no chunk.
        """
        if not is_tail_stored:
            stored_tokens += -stored_tokens % self._format.layout.chunk_tokens
        self._begin(
            request_id,
            SavedSequence(
                name=name,
                token_ids=token_ids,
                first_token=stored_tokens,
                is_kept=True,
                keeps_tail=keeps_tail,
                cuts=cuts,
            ),
        )

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Finds room for the rows of every sequence that is not stopped.

        Requests that were not announced are ignored, and so are tokens before the stored
        ones. Tokens that a request has jumped over are stored: it goes on behind them.
        """
        self.abandon_step()
        self._note_room()
        for segment in segments:
            if segment.request_id in self._sequences:
                self._add_rows(segment)
        if not self._rows:
            return
        row_count = max(segment.rows.stop for segment in segments)
        is_held = self._held.may_hold(self._rows, row_count)
        if not (is_held and self._held.is_followed_by(self._rows, row_count)):
            self._hand_over_held()
        self._drop_cut()
        if not self._rows:
            return
        if is_held:
            self._held.begin(self._rows, row_count)
        else:
            self._snapshot = self._opened_snapshot(self._rows, row_count)

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Copies what the layout stores of one layer: its input, keys and values, or nothing."""
        if self._held.is_open:
            kind = self._format.states.layers[layer].kind
            self._held.take(layer, stored_parts(kind, hidden, keys, values))
        elif self._snapshot is not None:
            self._snapshot.take(layer, hidden, keys, values)

    def end_step(self) -> None:
        """Hands the step over, or lets it wait for those that follow it."""
        if self._held.is_open:
            if self._held.end():
                self._hand_over_held()
        elif self._snapshot is not None:
            self._snapshot.launch()
            self._queue.append(self._snapshot, tuple(self._rows))
        self._snapshot = None
        self._rows.clear()

    def abandon_step(self) -> None:
        """Forgets a step that never ends, because computing it failed; gives back its room."""
        self._held.abandon()
        snapshot, self._snapshot = self._snapshot, None
        self._rows.clear()
        if snapshot is not None:
            _give_back(snapshot)

    def end_request(self, request_id: int) -> None:
        """Ends a sequence; its incomplete chunk is forgotten."""
        self._hand_over_held()
        sequence = self._sequences.pop(request_id)
        if not sequence.is_cut:
            self._queue.close_sequence(sequence)

    def finish(self) -> SaveReport:
        """Waits until the complete chunks of ended sequences are durable or dropped.

        Any thread may call it, also while the engine's goes on with other sequences.
        """
        return self._queue.finish()

    def close(self) -> None:
        """Finishes and releases everything; the saver cannot be used afterwards."""
        self.abandon_step()
        for request_id in list(self._sequences):
            self.end_request(request_id)
        try:
            self._queue.close()
        finally:
            self._copies.pin(None)

    def _open(self, request_id: int, token_ids: Sequence[int], first_token: int) -> SavedSequence:
        # No two stretches of a request begin at the same token.
        name = f"{self._prefix}-{first_token}-{request_id}"
        sequence = SavedSequence(name=name, token_ids=token_ids, first_token=first_token)
        return self._begin(request_id, sequence)

    def _open_after_jump(
        self, request_id: int, before: SavedSequence, first_token: int
    ) -> SavedSequence:
        """The next stretch of a request; that before it is closed, its name free by then."""
        if not before.keeps_tail:
            return self._open(request_id, before.token_ids, first_token)
        return self._begin(
            request_id,
            SavedSequence(
                name=before.name,
                token_ids=before.token_ids,
                first_token=first_token,
                is_kept=True,
                keeps_tail=True,
                cuts=before.cuts,
            ),
        )

    def _begin(self, request_id: int, sequence: SavedSequence) -> SavedSequence:
        self._sequences[request_id] = sequence
        self._queue.open(sequence)
        return sequence

    def _add_rows(self, segment: Segment) -> None:
        """Adds what is new of one sequence to the rows of the step."""
        sequence = self._sequences[segment.request_id]
        segment_token = segment.stop_token - segment.token_count
        first = max(segment_token, sequence.first_token)
        token_count = segment.stop_token - first
        if token_count <= 0:
            return
        if _has_ended(sequence):
            self._queue.count_dropped(token_count)
            return
        if first > sequence.next_token and (sequence.keeps_tail or not sequence.is_kept):
            self._hand_over_held()
            if not sequence.is_cut:
                self._queue.close_sequence(sequence)
            sequence = self._open_after_jump(segment.request_id, sequence, first)
        sequence.next_token = segment.stop_token
        first_row = segment.first_row + first - segment_token
        self._rows.append(Rows(sequence, first, first_row, token_count))

    def _pin(self) -> None:
        """Once for each session, of which every one has memory of its own."""
        if self._client.epoch != self._pinned_epoch and (memory := self._client.arena_memory):
            self._copies.pin(memory)
            self._pinned_epoch = self._client.epoch

    def _note_room(self) -> None:
        """How much may wait on the device; the arena of each session has a size of its own."""
        if self._client.epoch != self._room_epoch:
            self._room_epoch = self._client.epoch
            memory = self._client.arena_memory
            arena_bytes = 0 if memory is None else memory.nbytes
            self._held.set_room(
                min(HELD_BYTES_MAX, arena_bytes // HELD_SHARE),
                row_bytes=SnapshotGeometry(self._format.states, 1).byte_count,
            )

    def _hand_over_held(self) -> None:
        """Copies the steps that wait, all together."""
        held = self._held
        if not held.step_count:
            return
        rows = held.joined_rows()
        try:
            snapshot = self._opened_snapshot(rows, held.row_count)
            if snapshot is not None:
                self._append_held(snapshot, rows)
        finally:
            held.clear()

    def _append_held(self, snapshot: Snapshot, rows: tuple[Rows, ...]) -> None:
        try:
            for layer in range(self._format.layout.layer_count):
                snapshot.take_stored(layer, self._held.parts(layer))
            snapshot.launch()
        except BaseException as error:
            _give_back(snapshot)
            self._cut(rows)
            # Where the device has no room for them they are not saved; the engine goes on.
            if not isinstance(error, torch.OutOfMemoryError):
                raise
        else:
            self._queue.append(snapshot, rows)

    def _drop_cut(self) -> None:
        """Takes the sequences that are cut by now out of the step that begins."""
        for part in self._rows:
            if part.sequence.is_cut:
                self._queue.count_dropped(part.token_count)
        self._rows = [part for part in self._rows if not part.sequence.is_cut]

    def _cut(self, rows: Sequence[Rows]) -> None:
        for part in rows:
            part.sequence.is_cut = True
            self._queue.count_dropped(part.token_count)
            # Nothing follows what it has: its open chunk need not wait for the request.
            self._queue.close_sequence(part.sequence)

    def _opened_snapshot(self, rows: Sequence[Rows], row_count: int) -> Snapshot | None:
        """Room for these rows; None where there is none, and their sequences end here."""
        geometry = SnapshotGeometry(self._format.states, row_count)
        region = self._client.allocate(geometry.byte_count, connects=False)
        if region is None:
            # A full arena, or a lost session: that one is connected again behind our back.
            self._queue.connect()
            self._cut(rows)
            return None
        self._pin()
        return Snapshot(
            region, self._format, row_count, self._copies, gathered_bytes=self._gathered_bytes
        )


def _has_ended(sequence: SavedSequence) -> bool:
    return sequence.is_cut or sequence.is_stopped


def _give_back(snapshot: Snapshot) -> None:
    try:
        snapshot.settle()
    finally:
        snapshot.region.release()
