"""A sequence in memory. Every chunk of it is durable at once; only its tail may not be."""

from dataclasses import dataclass, field

from kvstored_client.testing.checks import check_halves
from kvstored_client.testing.refusal import refuse
from kvstored_client.testing.stored_chunk import StoredChunk
from kvstored_client.testing.tail import Tail
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import sequence_pb2


@dataclass(slots=True, kw_only=True)
class MemorySequence:
    """Keys of complete chunks and an open tail of ``tail_tokens`` tokens.

    ``tail`` holds its rows; where it is None, they are those of the ``flushed`` short chunk
    (key, tokens), which lies behind the first ``flushed_index`` chunks. ``session_id`` names
    the session of an ephemeral sequence (0: it is none), ``owner`` the one that appended last.
    """

    name: str
    layout: StateLayout
    session_id: int = 0
    owner: int = 0
    keys: list[bytes] = field(default_factory=list)
    dropped_chunks: int = 0
    tail: Tail | None = None
    tail_tokens: int = 0
    flushed: tuple[bytes, int] | None = None
    flushed_index: int = 0
    is_stopped: bool = False

    @property
    def length_tokens(self) -> int:
        """Tokens that were appended and not dropped."""
        return len(self.keys) * self.layout.chunk_tokens + self.tail_tokens

    @property
    def durable_tail(self) -> tuple[bytes, int] | None:
        """The short chunk behind the last complete one, if there is one."""
        return self.flushed if self.flushed_index == len(self.keys) else None

    @property
    def is_flushed(self) -> bool:
        """Whether there is an open tail, and all of it is durable."""
        tail = self.durable_tail
        return tail is not None and 0 < tail[1] == self.tail_tokens

    def is_anothers(self, session_id: int) -> bool:
        """Whether the open tail has rows of another session that are not flushed."""
        return self.tail is not None and self.owner != session_id and not self.is_flushed

    def to_proto(self) -> sequence_pb2.Sequence:
        """The sequence as the contract has it."""
        tail_key, durable_tokens = self.durable_tail or (b"", 0)
        return sequence_pb2.Sequence(
            name=self.name,
            layout_id=self.layout.layout_id,
            keys=self.keys,
            dropped_chunks=self.dropped_chunks,
            tail_key=tail_key,
            durable_tail_tokens=durable_tokens,
            tail_tokens=self.tail_tokens,
            staged_tokens=self.length_tokens,
            durable_tokens=len(self.keys) * self.layout.chunk_tokens + durable_tokens,
            stopped=self.is_stopped,
            ephemeral=self.session_id != 0,
        )

    def check_chunks(self, count: int) -> None:
        """Refuses a number of chunks that the sequence does not have."""
        if count > len(self.keys):
            refuse(
                Reason.SEQUENCE_CONFLICT,
                f"the sequence has {len(self.keys)} chunks and not {count}",
            )

    def cut(self, chunk_count: int, tail_tokens: int = 0) -> None:
        """Keeps the first chunks and so many tokens behind them; a longer flush is forgotten."""
        flushed_tokens = self.flushed[1] if self.flushed else 0
        if (self.flushed_index, flushed_tokens) > (chunk_count, tail_tokens):
            self.flushed = None
        del self.keys[chunk_count:]
        self.tail_tokens = tail_tokens

    def lose_tail(self) -> None:
        """Drops what of the tail is not durable."""
        self.tail = None
        self.tail_tokens = self.durable_tail[1] if self.durable_tail else 0

    def truncate_front(self, drop_chunks: int) -> None:
        """Drops chunks from the front; the tail stays."""
        self.check_chunks(drop_chunks)
        del self.keys[:drop_chunks]
        self.dropped_chunks += drop_chunks
        if self.flushed_index < drop_chunks:
            self.flushed = None
        self.flushed_index = max(0, self.flushed_index - drop_chunks)

    def truncate_back(self, drop_chunks: int) -> None:
        """Drops the tail and chunks from the back; does nothing for 0."""
        self.check_chunks(drop_chunks)
        if drop_chunks:
            self.cut(len(self.keys) - drop_chunks)
            self.tail = None
            self.is_stopped = False

    def truncate_tokens(
        self, drop_tokens: int, chunks: dict[bytes, StoredChunk], *, owner: int
    ) -> None:
        """Drops tokens from the back; what is left of a chunk becomes the open tail."""
        if drop_tokens > self.length_tokens:
            refuse(Reason.SEQUENCE_CONFLICT, f"the sequence has {self.length_tokens} tokens")
        kept = self.length_tokens - drop_tokens
        chunk_count, tail_tokens = divmod(kept, self.layout.chunk_tokens)
        tail = None
        if tail_tokens:
            check_halves(self.layout)
            if chunk_count == len(self.keys) and self.tail is not None:
                tail = self.tail.first(tail_tokens)
            else:
                tail = self._loaded(chunk_count, tail_tokens, chunks)
            self.owner = owner
        self.cut(chunk_count, tail_tokens)
        self.tail = tail
        self.is_stopped = False

    def open_tail(self, chunks: dict[bytes, StoredChunk]) -> bool:
        """Loads the tail that was flushed; False when it is not stored any more."""
        if self.tail is None and self.tail_tokens:
            assert self.flushed is not None
            if self.flushed[0] not in chunks:
                self.cut(len(self.keys))
                self.is_stopped = True
                return False
            self.tail = self._loaded(len(self.keys), self.tail_tokens, chunks)
        return True

    def _loaded(self, chunk_index: int, token_count: int, chunks: dict[bytes, StoredChunk]) -> Tail:
        if chunk_index < len(self.keys):
            key = self.keys[chunk_index]
        else:
            assert self.flushed is not None
            key = self.flushed[0]
        if key not in chunks:
            refuse(Reason.NOT_STORED, "the chunk that is to be cut is not stored any more")
        return Tail.of_slices(self.layout, chunks[key].slices, token_count)
