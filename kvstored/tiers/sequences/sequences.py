"""What clients do with sequences by name. Every change is durable when it returns."""

import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace

from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceTail
from kvstored.store.sequences import rules
from kvstored.store.sequences.rules import SequenceConflictError, SequenceExistsError
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.store.write.append_rows import check_halves
from kvstored.tiers.chunks.frame import OpenFrame
from kvstored.tiers.chunks.requests import NewChunk
from kvstored.tiers.sequences.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.sequences.open_sequences import OpenSequences
from kvstored.tiers.sequences.sequence_recorder import settle
from kvstored.tiers.sequences.tail_frames import TailFrames
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose names are meant, who owns what is opened, and until when that may be waited for."""

    namespace_id: bytes
    session_id: int
    deadline: float = math.inf
    """On the monotonic clock. A commit that has begun is waited for all the same."""
    ends: bool = True
    """Whether its session ends one day, and gives back what it keeps open."""


class Sequences:
    """Sequences by name. Thread-safe; changes of one sequence are serialised.

    Raises SequenceUnknownError, SequenceExistsError, SequenceConflictError,
    SequenceLimitError, SequenceStorageError, IndexFailure, and SequenceBusyError when somebody
    else changes the sequence until the caller's deadline.
    """

    def __init__(self, *, opened: OpenSequences, tails: TailFrames) -> None:
        self._opened = opened
        self._tails = tails

    def get(self, caller: Caller, name: str) -> SequenceState:
        """The sequence as it is now."""
        with self._opened.held_one(self._resolve(caller, name), caller.deadline) as sequence:
            return sequence.known

    def glance(self, caller: Caller, name: str) -> SequenceState | None:
        """The sequence as it was last known, without waiting; None where nobody uses it."""
        return self._opened.glance(self._resolve(caller, name))

    def is_ephemeral(self, caller: Caller, name: str) -> bool:
        """Whether the name means an ephemeral sequence of the caller."""
        return self._resolve(caller, name).is_ephemeral

    def list(self, caller: Caller) -> list[str]:
        """Names of all sequences of the namespace, without ephemeral ones."""
        return self._opened.table.list(caller.namespace_id)

    def create(
        self,
        caller: Caller,
        name: str,
        layout: StateLayout,
        *,
        keys: Sequence[bytes] = (),
        is_ephemeral: bool = False,
    ) -> SequenceState:
        """Makes a sequence that begins with stored chunks, if ``keys`` names some."""
        state = rules.create(layout.layout_id, layout.chunk_tokens, keys)
        identity = SequenceId(caller.namespace_id, name, caller.session_id * is_ephemeral)
        with self._opened.held([identity], caller.deadline) as held:
            self._make(held[identity], caller, state, layout)
        self._opened.on_grown(caller.namespace_id, state.keys)
        return state

    def append(
        self, caller: Caller, name: str, keys: Sequence[bytes], expected_chunks: int
    ) -> SequenceState:
        """Adds stored chunks at the back of a sequence of the expected length."""
        with self._opened.held_one(self._resolve(caller, name), caller.deadline) as sequence:
            state = rules.append(sequence.known, keys, expected_chunks)
            if sequence.owner:
                self._opened.own(sequence, sequence.owner, len(state.keys))
            self._opened.store(sequence, state)
            return state

    def fork(self, caller: Caller, name: str, new_name: str, keep_chunks: int) -> SequenceState:
        """Copies a sequence under a new name, with its first chunks, or (0) all and its tail.

        A fork of an ephemeral sequence is one as well. Waits until the chunks of the
        original are durable. Without room in DRAM, and where another session has appended to it,
        the fork has of the open tail what is flushed of it.
        """
        identity = self._resolve(caller, name)
        new_identity = replace(identity, name=new_name)
        with self._opened.held([identity, new_identity], caller.deadline) as held:
            original, copy = held[identity], held[new_identity]
            self._opened.look_up(original)
            if not self._settle_all(original, caller.deadline):
                raise SequenceStorageError(Reason.DEADLINE)
            state = rules.fork(original.known, keep_chunks)
            self._refuse_existing(copy, caller)
            has_frame = original.frame is not None and state.tail_tokens > 0 and caller.ends
            has_frame = has_frame and not original.is_anothers(caller.session_id)
            if not has_frame:
                state = state.without_open_tail()
            if has_frame:
                self._opened.own(copy, caller.session_id, len(state.keys))
            try:
                self._make(copy, caller, state, original.layout)
            except BaseException:
                self._opened.forget(copy)
                raise
            if original.frame is not None and has_frame:
                copy.frame = self._tails.copied(original.frame)
                if copy.frame is None:
                    copy.state = state.without_open_tail().stopped()
            return copy.known

    def truncate_front(self, caller: Caller, name: str, drop_chunks: int) -> SequenceState:
        """Drops chunks from the front; the tail stays."""
        with self._opened.held_one(self._resolve(caller, name), caller.deadline) as sequence:
            self._opened.store(sequence, rules.truncate_front(sequence.known, drop_chunks))
            return sequence.known

    def truncate_back(self, caller: Caller, name: str, drop_chunks: int) -> SequenceState:
        """Drops the tail and chunks from the back."""
        with self._opened.held_one(self._resolve(caller, name), caller.deadline) as sequence:
            self._opened.store(sequence, rules.truncate_back(sequence.known, drop_chunks))
            if drop_chunks:
                self._opened.close_frame(sequence)
            return sequence.known

    def truncate_tokens(self, caller: Caller, name: str, drop_tokens: int) -> SequenceState:
        """Drops tokens from the back; what is left of a chunk becomes the open tail.

        Raises LayoutError where that chunk cannot be cut; nothing is changed then.
        """
        with self._opened.held_one(self._resolve(caller, name), caller.deadline) as sequence:
            before = sequence.known
            _check_owner(sequence, caller)
            if sequence.layout is None:
                raise SequenceStorageError(Reason.LAYOUT_UNKNOWN)
            state = rules.truncate_tokens(before, drop_tokens)
            if state.tail_tokens:
                check_halves(sequence.layout)
            is_in_tail = len(state.keys) == len(before.keys)
            frame = sequence.frame if is_in_tail and state.tail_tokens else None
            if state.tail_tokens and frame is None:
                key = self._tail_key(before, len(state.keys))
                frame = self._load(caller, sequence, key, state.tail_tokens)
            elif frame is not None:
                # What is left of a flushed tail is not flushed.
                self._opened.own(sequence, caller.session_id, len(state.keys))
            try:
                self._opened.store(sequence, state)
            except BaseException:
                if frame is not sequence.frame:
                    self._tails.close(frame)
                raise
            if frame is not sequence.frame:
                self._opened.close_frame(sequence)
                sequence.frame = frame
            return state

    def flush(
        self, caller: Caller, name: str, tail_key: bytes, expected_tokens: int
    ) -> SequenceState:
        """Makes a sequence of the expected length durable, its tail as a short chunk.

        The tail stays open, until others need its memory. An ephemeral sequence's tail is stored
        as well, but not its name. At the caller's deadline it returns with what is durable by
        then; chunks that are on their way become so after it, and nobody waits for a flush that
        is over.
        """
        with self._opened.held_one(self._resolve(caller, name), caller.deadline) as sequence:
            rules.check_length(sequence.known, expected_tokens)
            _check_owner(sequence, caller)
            flushed = sequence.known.flushed
            if sequence.known.is_flushed and flushed and flushed.key != tail_key:
                raise rules.SequenceConflictError(
                    "the last tokens of the sequence are flushed under another key"
                )
            tail = self._flush_tail(sequence, tail_key, caller.deadline)
            is_settled = self._settle_all(sequence, caller.deadline)
            rules.check_length(sequence.known, expected_tokens)
            state = sequence.known
            # A tail that the record names may not leave it for one behind chunks that are not
            # durable yet: the next flush finds the new one stored.
            if tail and (is_settled or state.durable_tail is None):
                state = state.with_flushed_tail(tail)
            self._opened.store(sequence, state)
            if sequence.frame is not None and sequence.known.is_flushed:
                self._opened.flushed.add(sequence.identity)
            return sequence.known

    def delete(self, caller: Caller, name: str) -> None:
        """Forgets a sequence; its chunks stay until they are evicted."""
        identity = self._resolve(caller, name)
        with self._opened.held_one(identity, caller.deadline) as sequence:
            if not identity.is_ephemeral:
                self._opened.table.delete(identity.namespace_id, identity.name)
            self._opened.forget(sequence)

    def _resolve(self, caller: Caller, name: str) -> SequenceId:
        return self._opened.resolve(caller.namespace_id, caller.session_id, name)

    def _make(
        self,
        sequence: OpenSequence,
        caller: Caller,
        state: SequenceState,
        layout: StateLayout | None,
    ) -> None:
        """Fills a held sequence that must not exist; a named one is durable then."""
        self._refuse_existing(sequence, caller)
        identity = sequence.identity
        if identity.is_ephemeral:
            self._opened.own(sequence, caller.session_id, len(state.keys))
            self._opened.make_ephemeral(sequence)
        else:
            self._opened.table.create(identity.namespace_id, identity.name, state.record())
        sequence.state, sequence.layout = state, layout

    def _refuse_existing(self, sequence: OpenSequence, caller: Caller) -> None:
        """Raises SequenceExistsError unless the caller may give the name to a new sequence."""
        identity = sequence.identity
        would_be_shadowed = (
            not identity.is_ephemeral and self._resolve(caller, identity.name).is_ephemeral
        )
        if sequence.state is not None or would_be_shadowed:
            raise SequenceExistsError(f"there is a sequence {identity.name!r} already")
        self._opened.table.refuse_existing(identity.namespace_id, identity.name)

    def _settle_all(self, sequence: OpenSequence, deadline: float) -> bool:
        """Waits until every chunk of a held sequence is durable; False at the deadline.

        Raises when one never will be.
        """
        left_s = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        wait(sequence.pending.values(), timeout=left_s)
        pending = [(key, each) for key, each in sequence.pending.items() if each.done()]
        for key, outcome in pending:
            settle(self._opened, sequence, key, outcome)
        self._opened.store(sequence, sequence.known.advanced(sequence.pending))
        for _, outcome in pending:
            if outcome.result() is not Reason.UNSPECIFIED:
                raise SequenceStorageError(outcome.result())
        return not sequence.pending

    def _flush_tail(
        self, sequence: OpenSequence, tail_key: bytes, deadline: float
    ) -> SequenceTail | None:
        """Makes the open tail a durable short chunk; None when there is nothing to flush.

        None as well when it is not durable at the deadline: the next flush finds it stored.
        """
        state = sequence.known
        if not state.tail_tokens:
            return None
        if not tail_key:
            raise SequenceConflictError(
                f"the sequence has an open tail of {state.tail_tokens} tokens; flush it with the "
                "key of these tokens"
            )
        tail = SequenceTail(key=tail_key, token_count=state.tail_tokens)
        if sequence.frame is None:
            # It was flushed before and not appended to since.
            return None
        index = len(state.keys)
        first_key = state.keys[0] if state.keys else tail_key
        ticket = self._tails.flush(
            sequence.identity.namespace_id,
            sequence.frame,
            NewChunk(
                key=tail_key,
                parent_key=state.keys[-1] if state.keys else b"",
                token_count=state.tail_tokens,
                stripe=int.from_bytes(first_key[:4], "little") + index,
            ),
            deadline=deadline,
        )
        reason = ticket.reason
        if ticket.durable is not None:
            left_s = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
            if not wait([ticket.durable], timeout=left_s).done:
                return None
            reason = ticket.durable.result()
        if reason is not Reason.UNSPECIFIED:
            raise SequenceStorageError(reason)
        return tail

    def _tail_key(self, state: SequenceState, chunk_index: int) -> bytes:
        """Key of the stored chunk that holds the tokens behind ``chunk_index`` chunks."""
        if chunk_index < len(state.keys):
            return state.keys[chunk_index]
        assert state.flushed is not None
        return state.flushed.key

    def _load(
        self, caller: Caller, sequence: OpenSequence, key: bytes, token_count: int
    ) -> OpenFrame:
        assert sequence.layout is not None
        self._opened.own(sequence, caller.session_id, len(sequence.known.keys))
        chunk = ChunkId(sequence.identity.namespace_id, key)
        loaded = self._tails.load(chunk, sequence.layout, token_count, deadline=caller.deadline)
        if isinstance(loaded, Reason):
            raise SequenceStorageError(loaded)
        return loaded


def _check_owner(sequence: OpenSequence, caller: Caller) -> None:
    if sequence.is_anothers(caller.session_id):
        raise rules.SequenceConflictError(
            "another client has added tokens to the sequence and not flushed them; only it may "
            "change them"
        )
