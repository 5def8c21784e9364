"""The sequences in use: who holds them, and what their sessions' ends give back."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from kvstored.store.index.index import IndexFailure
from kvstored.store.sequences.rules import SequenceBusyError, SequenceUnknownError
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.store.sequences.sequence_table import SequenceTable
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.sequences.flushed_tails import LET_GO_AT_ONCE, FlushedTails
from kvstored.tiers.sequences.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.sequences.owned_sequences import OwnedSequences
from kvstored_contract.layout import StateLayout


def _nobody_hears(_namespace_id: bytes, _keys: tuple[bytes, ...]) -> None:
    pass


class OpenSequences:
    """All sequences that are being used, and those that a session appends to. Thread-safe.

    Changes of one sequence are serialised by ``held``. Nothing waits for a sequence while
    it keeps the committer from going on, so holders may wait for commits.

    ``on_grown`` hears of the durable keys by which a sequence grows, with the one before them.
    """

    def __init__(
        self,
        *,
        table: SequenceTable,
        dram: DramTier,
        layout_of: Callable[[bytes], StateLayout | None],
        on_grown: Callable[[bytes, tuple[bytes, ...]], None] = _nobody_hears,
    ) -> None:
        self.table = table
        self.on_grown = on_grown
        self._dram = dram
        self._layout_of = layout_of
        self._lock = threading.Lock()
        self._sequences: dict[SequenceId, OpenSequence] = {}
        self._ephemeral: set[SequenceId] = set()
        """The ephemeral ones that exist; ``_sequences`` also has those that are only held."""
        self._owned = OwnedSequences()
        self.flushed = FlushedTails()
        dram.open_frames.let_go = partial(let_go_of_tails, self)

    def resolve(self, namespace_id: bytes, session_id: int, name: str) -> SequenceId:
        """Which sequence a session means by a name: its own ephemeral one comes first."""
        ephemeral = SequenceId(namespace_id, name, session_id)
        return ephemeral if ephemeral in self._ephemeral else SequenceId(namespace_id, name)

    @contextmanager
    def held(
        self, identities: Iterable[SequenceId], deadline: float = math.inf
    ) -> Iterator[dict[SequenceId, OpenSequence]]:
        """Keeps everybody else from these sequences while the body changes them.

        Raises SequenceBusyError when somebody else holds one of them until the deadline.
        """
        with ExitStack() as stack:
            # In one order, so that two who hold several never wait for each other.
            yield {
                one: stack.enter_context(self._held(one, deadline))
                for one in sorted(set(identities))
            }

    @contextmanager
    def held_if_free(
        self, identities: Iterable[SequenceId], deadline: float = 0.0
    ) -> Iterator[list[OpenSequence]]:
        """As ``held``, without those that somebody else holds until the deadline (0: now)."""
        with ExitStack() as stack:
            held = []
            for one in sorted(set(identities)):
                with suppress(SequenceBusyError):
                    held.append(stack.enter_context(self._held(one, deadline)))
            yield held

    @contextmanager
    def held_one(self, identity: SequenceId, deadline: float = math.inf) -> Iterator[OpenSequence]:
        """As ``held``, for one sequence that exists; raises SequenceUnknownError."""
        with self._held(identity, deadline) as sequence:
            self.look_up(sequence)
            yield sequence

    def glance(self, identity: SequenceId) -> SequenceState | None:
        """The state of a sequence that somebody may be changing; None where it is not known."""
        with self._lock:
            sequence = self._sequences.get(identity)
        return None if sequence is None else sequence.state

    def look_up(self, sequence: OpenSequence) -> SequenceState:
        """The state of a held sequence; raises SequenceUnknownError and IndexFailure."""
        if sequence.state is None:
            identity = sequence.identity
            if identity.is_ephemeral:
                raise SequenceUnknownError(f"there is no sequence {identity.name!r}")
            record = self.table.get(identity.namespace_id, identity.name)
            layout = self._layout_of(record.layout_id)
            sequence.layout = layout
            sequence.state = SequenceState.of_record(record, layout.chunk_tokens if layout else 0)
        return sequence.state

    def own(self, sequence: OpenSequence, session_id: int, chunk_count: int) -> None:
        """Makes a session the owner of a held sequence that is to have so many chunks.

        Raises SequenceLimitError, and nothing is changed.
        """
        with self._lock:
            self._owned.check(session_id, sequence.identity, chunk_count)
            self._disown(sequence)
            sequence.owner = session_id
            self._owned.add(session_id, sequence.identity, chunk_count)

    def make_ephemeral(self, sequence: OpenSequence) -> None:
        """Lets its session find a held ephemeral sequence by its name, until ``forget``."""
        with self._lock:
            self._ephemeral.add(sequence.identity)

    def store(self, sequence: OpenSequence, state: SequenceState) -> None:
        """Gives a held sequence another state, durably as far as the index knows of it.

        Raises SequenceStorageError, and nothing is changed.
        """
        if not sequence.identity.is_ephemeral and state.record() != sequence.known.record():
            identity = sequence.identity
            self.table.store([(identity.namespace_id, identity.name, state.record())])
        self.on_grown(sequence.identity.namespace_id, state.grown_keys(sequence.known))
        sequence.state = state

    def close_frame(self, sequence: OpenSequence) -> None:
        """Gives back the frame of a held sequence's tail, if there is one."""
        if sequence.frame is not None:
            self._dram.open_frames.close(sequence.frame)
            sequence.frame = None
            self.flushed.discard(sequence.identity)

    def forget(self, sequence: OpenSequence) -> None:
        """Takes a held sequence out of memory: it is deleted, or could not be made."""
        self.close_frame(sequence)
        sequence.state = None
        sequence.pending.clear()
        with self._lock:
            self._ephemeral.discard(sequence.identity)
            self._disown(sequence)

    def end_session(self, session_id: int) -> None:
        """Ends a session's ephemeral sequences, and drops of the others what is not flushed.

        No call of the session may be in progress. What is on its way to the devices still
        becomes durable.
        """
        with self._lock:
            identities = self._owned.of(session_id)
        for identity in identities:
            with self._held(identity) as sequence:
                # Another session may have appended meanwhile.
                if sequence.owner != session_id:
                    continue
                if identity.is_ephemeral or sequence.state is None:
                    self.forget(sequence)
                    continue
                self.close_frame(sequence)
                sequence.state = sequence.known.without_open_tail()
                with self._lock:
                    self._disown(sequence)

    @contextmanager
    def _held(self, identity: SequenceId, deadline: float = math.inf) -> Iterator[OpenSequence]:
        with self._lock:
            sequence = self._sequences.setdefault(identity, OpenSequence(identity))
            sequence.users += 1
        is_held = False
        try:
            left_s = max(0.0, deadline - time.monotonic())
            is_held = sequence.lock.acquire(timeout=min(left_s, threading.TIMEOUT_MAX))
            if not is_held:
                raise SequenceBusyError(
                    f"somebody else was changing sequence {identity.name!r} until the deadline; "
                    "try again"
                )
            yield sequence
        finally:
            if is_held:
                self._leave(sequence)
                sequence.lock.release()
            with self._lock:
                sequence.users -= 1
                if not sequence.users and sequence.is_idle:
                    self._disown(sequence)
                    self.flushed.discard(identity)
                    del self._sequences[identity]

    def _leave(self, sequence: OpenSequence) -> None:
        """What is left of a sequence that was held: what is durable as it is has a cheaper place.

        Others may have the frame of its tail, and without one it is in memory no longer. A mark
        that it was stopped would go as well, so that keeps it.
        """
        identity, state = sequence.identity, sequence.state
        if state is None:
            return
        if sequence.frame is not None and state.is_flushed:
            self.flushed.keep(identity)
        is_durable = state.durable_tokens == state.length_tokens and not sequence.pending
        if identity.is_ephemeral or state.is_stopped or not is_durable:
            return
        is_known = self._knows_layout(state)
        with self._lock:
            if sequence.frame is None and is_known:
                self._disown(sequence)
            else:
                self._owned.uncount(sequence.owner, identity)

    def _knows_layout(self, state: SequenceState) -> bool:
        """Whether the next look at the sequence will tell its length."""
        with suppress(IndexFailure):
            return self._layout_of(state.layout_id) is not None
        return False

    def _disown(self, sequence: OpenSequence) -> None:
        self._owned.remove(sequence.owner, sequence.identity)
        sequence.owner = 0


def let_go_of_tails(opened: OpenSequences) -> bool:
    """Closes frames of a few flushed tails that nobody uses now; False when there are none.

    The next append to such a sequence loads its short chunk, as after a start. Without this the
    conversations that wait for their next turn would fill DRAM. Waits for nobody, so a holder of
    other sequences may call it.
    """
    closed_count = 0
    for _ in range(len(opened.flushed)):
        identity = opened.flushed.take()
        if identity is None:
            break
        closed_count += _let_go(opened, identity)
        if closed_count == LET_GO_AT_ONCE:
            break
    return closed_count > 0


def _let_go(opened: OpenSequences, identity: SequenceId) -> bool:
    with opened.held_if_free([identity]) as held:
        if not held:
            opened.flushed.add(identity)
        # Somebody may have appended since.
        may_go = [each for each in held if each.frame is not None and each.known.is_flushed]
        for sequence in may_go:
            opened.close_frame(sequence)
    return bool(may_go)
