"""The verb by which engines tell who waits."""

from collections.abc import Callable

from kvstored.counters import Counters
from kvstored.format.geometry import class_bytes
from kvstored.format.identity import ChunkId
from kvstored.store.sequences.rules import SequenceUnknownError
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.tiers.hints.queue_change import NamedEntry, QueueAnswer, QueueChange
from kvstored.tiers.hints.waiting_queue import WaitingQueue
from kvstored.tiers.policy.prefetch_plan import WaitingSequence
from kvstored.tiers.sequences.open_sequences import OpenSequences
from kvstored.tiers.sequences.sequences import Caller
from kvstored.turnstile import TURNSTILE
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import HINTED_CHUNKS_PER_SESSION_MAX

LOOKED_UP_AT_ONCE = 32
"""Sequences that are looked up before others get a turn."""


class Hints:
    """Finds the chunks of those who wait, and changes the queue. Thread-safe.

    ``on_change`` is called after each change that was taken; it must not block.
    """

    def __init__(
        self,
        *,
        queue: WaitingQueue,
        opened: OpenSequences,
        layout_of: Callable[[bytes], StateLayout | None],
        counters: Counters,
        on_change: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._opened = opened
        self._layout_of = layout_of
        self._counters = counters
        self._on_change = on_change

    def hint(self, caller: Caller, change: QueueChange) -> QueueAnswer:
        """Carries out a change. Waits for changes of others alone; raises IndexFailure.

        A name that enters twice does so as it is named last.
        """
        entered: dict[str, tuple[int, WaitingSequence[ChunkId]]] = {}
        unknown: dict[str, None] = {}
        chunk_count = 0
        for part in TURNSTILE.parts(change.entered, LOOKED_UP_AT_ONCE):
            for entry in part:
                unknown.pop(entry.name, None)
                _, before = entered.pop(entry.name, (0, None))
                chunk_count -= len(before.chunks) if before else 0
                # What a session cannot have waiting is not even looked up.
                is_possible = chunk_count <= HINTED_CHUNKS_PER_SESSION_MAX
                sequence = self._sequence(caller, entry, change) if is_possible else None
                if sequence is None:
                    unknown[entry.name] = None
                else:
                    chunk_count += len(sequence.chunks)
                    entered[entry.name] = (entry.place, sequence)
        answer = self._queue.change(
            caller.session_id,
            caller.namespace_id,
            versions=(change.version, change.previous_version),
            entered=entered,
            # One that is not known any more waits for nothing.
            left=(*change.left, *unknown),
        )
        if not answer.is_taken:
            self._counters.add("hints_outdated")
            return answer
        self._counters.add("hints_taken")
        self._on_change()
        return QueueAnswer(
            is_taken=True, version=answer.version, ignored=(*unknown, *answer.ignored)
        )

    def end_session(self, session_id: int) -> None:
        """Forgets the queue of a session."""
        self._queue.end_session(session_id)
        self._on_change()

    def _sequence(
        self, caller: Caller, entry: NamedEntry, change: QueueChange
    ) -> WaitingSequence[ChunkId] | None:
        """What an entry waits for; None when nobody knows its sequence, or that one's layout."""
        keys, layout_id = entry.keys, entry.layout_id
        if not keys:
            state = self._state(caller, entry.name)
            if state is None:
                return None
            tail = (state.flushed.key,) if state.flushed else ()
            keys, layout_id = (*state.keys, *tail), state.layout_id
        layout = change.layouts.get(layout_id) or self._layout_of(layout_id)
        if layout is None:
            return None
        chunks: dict[ChunkId, None] = {}
        for part in TURNSTILE.parts(keys):
            chunks.update(dict.fromkeys(ChunkId(caller.namespace_id, key) for key in part))
        return WaitingSequence(chunks=tuple(chunks), chunk_bytes=class_bytes(layout))

    def _state(self, caller: Caller, name: str) -> SequenceState | None:
        """A sequence as it was last known, without waiting; None when there is none."""
        identity = self._opened.resolve(caller.namespace_id, caller.session_id, name)
        state = self._opened.glance(identity)
        if state is not None or identity.is_ephemeral:
            return state
        try:
            record = self._opened.table.get(identity.namespace_id, name)
        except SequenceUnknownError:
            return None
        return SequenceState.of_record(record, 0)
