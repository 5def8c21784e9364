"""The sequences of a namespace, for threads."""

from collections.abc import Sequence
from typing import Protocol

from kvstored_client.values import HintReport, QueueEntry, SequenceInfo
from kvstored_client.verbs import sequence_verbs
from kvstored_client.verbs.call import ResultT, Verb
from kvstored_contract.layout import StateLayout


class Run(Protocol):
    """Runs a verb: a client's own way to reach the daemon."""

    def __call__(self, verb: Verb[ResultT], /) -> ResultT:
        """The verb's result, or what stands for its failure."""


class Sequences:
    """Named lists of chunk keys with an open tail: conversations.

    Every change is durable when it is answered. What ``Client.append`` adds is not: keys
    appear as their chunks become durable, and the tail is durable as far as it was flushed;
    the rest of it goes with the session that appended last. None stands for a failure (a strict
    client raises: SequenceExistsError, SequenceUnknownError, SequenceConflictError, ...).
    A sequence does not keep its chunks from being evicted. Thread-safe.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def create(
        self,
        name: str,
        layout: StateLayout,
        *,
        keys: Sequence[bytes] = (),
        ephemeral: bool = False,
    ) -> SequenceInfo | None:
        """Makes a sequence of chunks of ``layout``; the name must be new.

        It begins behind the stored chunks that ``keys`` (32 bytes each) name. An
        ``ephemeral`` one is this session's own: it is never in the index and ends with the
        session, for requests that belong to no conversation.
        """
        return self._run(sequence_verbs.create(name, layout, keys=keys, ephemeral=ephemeral))

    def get(self, name: str) -> SequenceInfo | None:
        """The sequence; None, and no failure, when there is none of this name."""
        return self._run(sequence_verbs.get(name))

    def append(
        self, name: str, keys: Sequence[bytes], *, expected_chunks: int
    ) -> SequenceInfo | None:
        """Appends keys (32 bytes each) to a sequence that has ``expected_chunks`` keys now.

        Refused when it has another number, so that two writers cannot interleave.
        """
        return self._run(sequence_verbs.append(name, keys, expected_chunks=expected_chunks))

    def fork(self, name: str, new_name: str, *, keep_chunks: int = 0) -> SequenceInfo | None:
        """Copies the first ``keep_chunks`` chunks (0: all and the tail) into a new sequence.

        Shares the complete chunks; waits until they are durable.
        """
        return self._run(sequence_verbs.fork(name, new_name, keep_chunks=keep_chunks))

    def truncate_front(self, name: str, drop_chunks: int) -> SequenceInfo | None:
        """Drops the first ``drop_chunks`` chunks; the tail stays."""
        return self._run(sequence_verbs.truncate_front(name, drop_chunks))

    def truncate_back(self, name: str, drop_chunks: int) -> SequenceInfo | None:
        """Drops the open tail and the last ``drop_chunks`` chunks; 0 drops nothing."""
        return self._run(sequence_verbs.truncate_back(name, drop_chunks))

    def truncate_tokens(self, name: str, drop_tokens: int) -> SequenceInfo | None:
        """Drops the last ``drop_tokens`` tokens.

        A cut inside a chunk makes its head the open tail, which must be flushed to be
        durable. Refused while another client has appended to the tail and not flushed it.
        """
        return self._run(sequence_verbs.truncate_tokens(name, drop_tokens))

    def flush(
        self, name: str, tail_key: bytes, *, expected_tokens: int, timeout_ms: int = 10_000
    ) -> SequenceInfo | None:
        """Makes a sequence durable that has ``expected_tokens`` tokens, its tail included.

        The tail is stored as a short chunk under ``tail_key`` (32 bytes: the key of its
        tokens; empty when there is none) and stays open. Refused for another length,
        and where another client has appended to the tail and not flushed it, because the key
        would name other tokens. What is not durable after ``timeout_ms`` is no
        failure: ``reason`` is DEADLINE then, and ``durable_tokens`` says how far it came.
        """
        return self._run(
            sequence_verbs.flush(
                name, tail_key, expected_tokens=expected_tokens, timeout_ms=timeout_ms
            )
        )

    def delete(self, name: str) -> bool:
        """Deletes the sequence, not its chunks; False when there was none."""
        return self._run(sequence_verbs.delete(name))

    def hint(
        self,
        entered: Sequence[QueueEntry],
        left: Sequence[str] = (),
        *,
        version: int,
        previous_version: int = 0,
    ) -> HintReport | None:
        """Tells which requests entered or left the engine's queue; leaving comes first.

        ``version`` grows with every change, and ``previous_version`` is the one that it was made
        from; with 0 ``entered`` is the whole queue. At most 4096 wait. The daemon keeps what waits
        and fetches it ahead, as far as there is room; the queue ends with the session.
        """
        return self._run(
            sequence_verbs.hint(entered, left, version=version, previous_version=previous_version)
        )

    def list(self) -> list[str]:
        """Names of all sequences of the namespace."""
        return self._run(sequence_verbs.list_names())
