"""Lets the records of sequences follow their chunks onto the devices."""

import logging
import math
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import chain
from typing import NamedTuple

from kvstored.store.index.failure import IndexFailure
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.tiers.sequences.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.sequences.open_sequences import OpenSequences
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)
RETRY_S = 0.005
"""How soon a sequence that was in use is looked at again."""
CLOSE_WAIT_S = 10.0
"""How long ``close`` waits for sequences that are in use; their records stay shorter then."""


class Settled(NamedTuple):
    """A chunk of a sequence that is durable now or never will be."""

    identity: SequenceId
    key: bytes
    outcome: "Future[Reason]"


class SequenceRecorder:
    """One thread that stores what has become durable, many sequences in one commit.

    Thread-safe. A record never names a key before that chunk and all before it are
    durable; a chunk that could not be stored ends its sequence there.
    """

    def __init__(self, sequences: OpenSequences) -> None:
        self._sequences = sequences
        self._queue: queue.SimpleQueue[Settled | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kvstored-sequences", daemon=True)
        self._thread.start()

    def watch(self, sequence: OpenSequence, key: bytes, durable: "Future[Reason]") -> None:
        """Notes a chunk of a held sequence that is on its way; returns at once."""
        sequence.pending[key] = durable
        identity = sequence.identity
        durable.add_done_callback(lambda done: self._queue.put(Settled(identity, key, done)))

    def close(self) -> None:
        """Stores what has settled so far and ends the thread.

        Waits for sequences that are in use, at most CLOSE_WAIT_S.
        """
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        end = math.inf
        while (end == math.inf or not self._queue.empty()) and time.monotonic() < end:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            if None in batch:
                # What is in use comes back after this.
                end = time.monotonic() + CLOSE_WAIT_S
            try:
                self._settle(event for event in batch if event is not None)
            except (IndexFailure, SequenceStorageError) as error:
                # What is not recorded is shorter after a restart; the next commit may work.
                LOGGER.warning("records of sequences are not up to date: %s", error)
            except Exception:
                LOGGER.exception("records of sequences are not up to date")
        if not self._queue.empty():
            LOGGER.warning("sequences were in use until the end; their records are not up to date")

    def _settle(self, events: Iterable[Settled]) -> None:
        by_sequence: defaultdict[SequenceId, list[Settled]] = defaultdict(list)
        for event in events:
            by_sequence[event.identity].append(event)
        try:
            with self._sequences.held_if_free(by_sequence) as held:
                self._store([self._settled(one, by_sequence.pop(one.identity)) for one in held])
        finally:
            # A flush may hold its sequence for as long as a device takes: nobody waits behind it.
            for event in chain.from_iterable(by_sequence.values()):
                self._queue.put(event)
        if by_sequence:
            time.sleep(RETRY_S)

    def _settled(
        self, sequence: OpenSequence, events: list[Settled]
    ) -> tuple[OpenSequence, SequenceState | None]:
        """A held sequence and what it is when its record is stored."""
        for event in events:
            settle(self._sequences, sequence, event.key, event.outcome)
        state = sequence.state
        return sequence, state and state.advanced(sequence.pending)

    def _store(self, advanced: list[tuple[OpenSequence, SequenceState | None]]) -> None:
        recorded = []
        for sequence, state in advanced:
            if state is not None:
                self._sequences.on_grown(
                    sequence.identity.namespace_id, state.grown_keys(sequence.known)
                )
            if state is None or sequence.identity.is_ephemeral:
                sequence.state = state
            elif state.durable_chunks != sequence.known.durable_chunks:
                recorded.append((sequence, state))
        if recorded:
            # Raises without success, and these stay as they were.
            self._sequences.table.store(
                [
                    (one.identity.namespace_id, one.identity.name, new.record())
                    for one, new in recorded
                ]
            )
        for sequence, state in recorded:
            sequence.state = state


def settle(
    sequences: OpenSequences, sequence: OpenSequence, key: bytes, outcome: "Future[Reason]"
) -> None:
    """Takes a chunk of a held sequence off its pending ones; without success it ends there.

    Does nothing for a chunk that was forgotten meanwhile.
    """
    if sequence.pending.get(key) is not outcome:
        return
    del sequence.pending[key]
    state = sequence.known
    if outcome.result() is not Reason.UNSPECIFIED and key in state.keys[state.durable_chunks :]:
        sequences.close_frame(sequence)
        sequence.state = state.ended_at(state.keys.index(key, state.durable_chunks))
