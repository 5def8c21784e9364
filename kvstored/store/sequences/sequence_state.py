"""A sequence as the daemon knows it: what was appended, and how much of it is durable. Pure."""

from collections.abc import Container
from dataclasses import dataclass, replace

from kvstored.format.sequence_record import SequenceRecord, SequenceTail


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceState:
    """A sequence with an open tail. Counts are those of the sequence as it is now.

    ``keys`` names its complete chunks, of which the first ``durable_chunks`` are durable.
    The open tail holds ``tail_tokens`` behind them. ``flushed`` is the short chunk that a
    flush made durable: the first tokens behind the first ``flushed_index`` chunks, which
    may be complete by now. ``is_stopped`` tells that rows after its end were dropped.

    Invariants: 0 <= durable_chunks <= len(keys); 0 <= tail_tokens < chunk_tokens; a flushed
    tail is never longer than what the sequence holds there. ``chunk_tokens`` is 0 while the
    layout is unknown; such a sequence has no open tail.
    """

    layout_id: bytes
    chunk_tokens: int
    keys: tuple[bytes, ...] = ()
    durable_chunks: int = 0
    dropped_chunks: int = 0
    tail_tokens: int = 0
    flushed: SequenceTail | None = None
    flushed_index: int = 0
    is_stopped: bool = False

    @classmethod
    def of_record(cls, record: SequenceRecord, chunk_tokens: int) -> "SequenceState":
        """What a record says: all of it is durable, and the tail is the flushed one."""
        tail = record.tail if chunk_tokens else None
        return cls(
            layout_id=record.layout_id,
            chunk_tokens=chunk_tokens,
            keys=record.keys,
            durable_chunks=len(record.keys),
            dropped_chunks=record.dropped_chunks,
            tail_tokens=tail.token_count if tail else 0,
            flushed=record.tail,
            flushed_index=len(record.keys),
        )

    @property
    def length_tokens(self) -> int:
        """Tokens that were appended and not dropped."""
        return len(self.keys) * self.chunk_tokens + self.tail_tokens

    @property
    def durable_tail(self) -> SequenceTail | None:
        """The short chunk behind the durable ones, if there is one."""
        return self.flushed if self.flushed_index == self.durable_chunks else None

    @property
    def is_flushed(self) -> bool:
        """Whether there is an open tail, and all of the sequence is durable as it is."""
        tail, is_last = self.durable_tail, self.durable_chunks == len(self.keys)
        return is_last and tail is not None and 0 < tail.token_count == self.tail_tokens

    @property
    def flushed_tail_tokens(self) -> int:
        """Tokens of the short chunk behind all others, also while the layout is unknown."""
        tail = self.flushed if self.flushed_index == len(self.keys) else None
        return tail.token_count if tail else 0

    @property
    def durable_tokens(self) -> int:
        """Tokens that the record names."""
        tail = self.durable_tail
        tail_tokens = tail.token_count if tail and self.chunk_tokens else 0
        return self.durable_chunks * self.chunk_tokens + tail_tokens

    def record(self) -> SequenceRecord:
        """What of the sequence is durable; never a key before its chunk is."""
        return SequenceRecord(
            layout_id=self.layout_id,
            keys=self.keys[: self.durable_chunks],
            dropped_chunks=self.dropped_chunks,
            tail=self.durable_tail,
        )

    def grown_keys(self, before: "SequenceState") -> tuple[bytes, ...]:
        """Keys that became durable since another state, after the one before them; () for none."""
        tail = self.durable_tail
        if self.durable_chunks <= before.durable_chunks and tail in (None, before.durable_tail):
            return ()
        first = max(0, min(before.durable_chunks, self.durable_chunks) - 1)
        keys = self.keys[first : self.durable_chunks]
        return (*keys, tail.key) if tail else keys

    def extended(self, token_count: int, keys: tuple[bytes, ...]) -> "SequenceState":
        """With so many tokens more, which complete the chunks named by ``keys``."""
        tail_tokens = self.tail_tokens + token_count - len(keys) * self.chunk_tokens
        return replace(self, keys=(*self.keys, *keys), tail_tokens=tail_tokens, is_stopped=False)

    def advanced(self, pending: Container[bytes]) -> "SequenceState":
        """With every leading chunk durable whose key is not ``pending``."""
        durable_chunks = self.durable_chunks
        while durable_chunks < len(self.keys) and self.keys[durable_chunks] not in pending:
            durable_chunks += 1
        return replace(self, durable_chunks=durable_chunks)

    def stopped(self) -> "SequenceState":
        """With a mark that rows after its end were dropped."""
        return replace(self, is_stopped=True)

    def cut(self, chunk_count: int, tail_tokens: int = 0) -> "SequenceState":
        """With its first ``chunk_count`` chunks and ``tail_tokens`` behind them.

        A flushed tail that holds more than that is forgotten.
        """
        flushed = self.flushed
        flushed_tokens = flushed.token_count if flushed else 0
        if (self.flushed_index, flushed_tokens) > (chunk_count, tail_tokens):
            flushed = None
        return replace(
            self,
            keys=self.keys[:chunk_count],
            durable_chunks=min(self.durable_chunks, chunk_count),
            tail_tokens=tail_tokens,
            flushed=flushed,
        )

    def ended_at(self, chunk_count: int) -> "SequenceState":
        """Stopped behind its first ``chunk_count`` chunks: the next one could not be stored.

        A short chunk that was flushed there is what is left of that one.
        """
        flushed = self.flushed if self.flushed_index == chunk_count else None
        tail_tokens = flushed.token_count if flushed and self.chunk_tokens else 0
        return self.cut(chunk_count, tail_tokens).stopped()

    def without_open_tail(self) -> "SequenceState":
        """With only what of its tail is durable: its open frame is gone."""
        tail = self.flushed if self.flushed_index == len(self.keys) else None
        return replace(self, tail_tokens=tail.token_count if tail and self.chunk_tokens else 0)

    def with_flushed_tail(self, tail: SequenceTail) -> "SequenceState":
        """With a short chunk of the whole open tail."""
        return replace(self, flushed=tail, flushed_index=len(self.keys))
