"""The sequences in use: who holds them, and what their sessions' ends give back."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from kvstored.store.index.index import IndexFailure
from kvstored.store.sequences.rules import (
    SequenceBusyError,
    SequenceLimitError,
    SequenceUnknownError,
)
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

        Where it has too many, those that are durable as they are leave memory first. Raises
        SequenceLimitError, and nothing is changed.
        """
        while not self._may_own(session_id, sequence.identity, chunk_count):
            with self._lock:
                owned = self._owned.of(session_id)
            if not forget_durable(self, owned):
                break
        with self._lock:
            self._owned.check(session_id, sequence.identity, chunk_count)
            self._disown(sequence)
            sequence.owner = session_id
            self._owned.add(session_id, sequence.identity, chunk_count)

    def _may_own(self, session_id: int, identity: SequenceId, chunk_count: int) -> bool:
        with self._lock, suppress(SequenceLimitError):
            self._owned.check(session_id, identity, chunk_count)
            return True
        return False

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
        """What is left of a sequence that was held. One that is durable as it is leaves memory.

        Not while its tail has a frame, or it has a mark that it was stopped: those are among the
        ``flushed``, for others to have the frame, and for its session to have other sequences.
        """
        if sequence.frame is not None and sequence.known.is_flushed:
            self.flushed.keep(sequence.identity)
        if sequence.frame is not None or not self._is_durable(sequence):
            return
        if sequence.known.is_stopped:
            self.flushed.keep(sequence.identity)
        else:
            with self._lock:
                self._disown(sequence)

    def _is_durable(self, sequence: OpenSequence) -> bool:
        """Whether the next look at a sequence finds in the index all that is known of it now."""
        state = sequence.state
        if state is None or sequence.identity.is_ephemeral or sequence.pending:
            return False
        with suppress(IndexFailure):
            is_known = self._layout_of(state.layout_id) is not None
            return is_known and state.durable_tokens == state.length_tokens
        return False

    def _disown(self, sequence: OpenSequence) -> None:
        self._owned.remove(sequence.owner, sequence.identity)
        sequence.owner = 0


def let_go_of_tails(opened: OpenSequences, helps: Callable[[bytes], bool]) -> bool:
    """Closes frames of a few flushed tails that nobody uses now; False when there are none.

    ``helps`` tells of which namespaces. The next append to such a sequence loads its short chunk,
    as after a start. Without this the conversations that wait for their next turn would fill
    DRAM. Waits for nobody, so a holder of other sequences may call it.
    """
    return _let_go(opened, lambda identity: helps(identity.namespace_id), forgets=False)


def forget_durable(opened: OpenSequences, identities: Iterable[SequenceId]) -> bool:
    """Takes a few of some sequences out of memory that are durable as they are.

    False when there are none. As ``let_go_of_tails``; what goes as well is the mark that one was
    stopped.
    """
    return _let_go(opened, frozenset(identities).__contains__, forgets=True)


def _let_go(
    opened: OpenSequences, is_meant: Callable[[SequenceId], bool], *, forgets: bool
) -> bool:
    gone_count = 0
    for identity in opened.flushed.first(is_meant):
        opened.flushed.discard(identity)
        with opened.held_if_free([identity]) as held:
            if not held:
                opened.flushed.add(identity)
            for sequence in held:
                # Somebody may have appended since.
                has_tail = sequence.frame is not None and sequence.known.is_flushed
                if has_tail:
                    opened.close_frame(sequence)
                state = sequence.state
                is_marked = state is not None and state.is_stopped and sequence.frame is None
                if forgets and is_marked:
                    sequence.state = replace(sequence.known, is_stopped=False)
                gone_count += has_tail or (forgets and is_marked)
        if gone_count >= LET_GO_AT_ONCE:
            break
    return gone_count > 0
