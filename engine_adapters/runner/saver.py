"""Saves the states of running sequences: rows of steps become chunks, full chunks are put."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from engine_adapters.runner.chunk_writer import Chain, ChunkWriter, FilledChunk, SaveReport
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import Segment
from kvstored_client import Client, NewChunk, Region

PUT_TIMEOUT_MS = 5_000
"""How long a put may wait for room in the daemon before its chunks are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class _OpenChunk:
    """A chunk that is being filled; ``states`` is [layers, 2, tokens, kv_heads, head_dim]."""

    index: int
    region: Region
    states: Tensor


@dataclass(slots=True, eq=False)
class _Sequence:
    """One sequence. ``token_ids`` is the engine's own list, which grows while it decodes."""

    token_ids: Sequence[int]
    chain: Chain = field(default_factory=Chain)
    open_chunk: _OpenChunk | None = None
    keys: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Piece:
    """Rows of the step that go to consecutive tokens of one chunk."""

    states: Tensor
    rows: slice
    tokens: slice


class StateSaver:
    """A StateSink that never makes the engine wait and never raises because of the store.

    Only complete chunks are saved, from the first chunk that holds a computed token on.
    When the arena is full or a put is rejected, that chunk and every later one of its
    sequence are dropped and counted.
    """

    def __init__(
        self, client: Client, state_format: StateFormat, *, put_timeout_ms: int = PUT_TIMEOUT_MS
    ) -> None:
        self._client = client
        self._format = state_format
        self._writer = ChunkWriter(client, state_format.layout, put_timeout_ms=put_timeout_ms)
        self._sequences: dict[int, _Sequence] = {}
        self._pieces: list[_Piece] = []
        self._filled: list[tuple[_Sequence, _OpenChunk]] = []

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Announces a sequence; ``stored_tokens`` must end on a chunk boundary."""
        if stored_tokens % self._format.layout.chunk_tokens:
            raise ValueError(f"{stored_tokens} stored tokens do not end on a chunk boundary")
        self._sequences[request_id] = _Sequence(token_ids)

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Finds a place in the arena for every token of the step."""
        for segment in segments:
            sequence = self._sequences[segment.request_id]
            if sequence.chain.is_broken:
                self._close_chunk(sequence)
                continue
            position = segment.first_position
            while position < segment.stop_position:
                position = self._place(sequence, segment, position)

    def take(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Copies one layer's unrotated keys and values [rows, kv_heads, head_dim]."""
        for piece in self._pieces:
            piece.states[layer, 0, piece.tokens] = keys[piece.rows]
            piece.states[layer, 1, piece.tokens] = values[piece.rows]

    def end_step(self) -> None:
        """Hands the chunks that the step completed to the writer."""
        filled = [
            chunk
            for sequence, open_chunk in self._filled
            if (chunk := self._seal(sequence, open_chunk)) is not None
        ]
        self._pieces.clear()
        self._filled.clear()
        self._writer.submit(filled)

    def end_request(self, request_id: int) -> None:
        """Forgets a sequence and its incomplete chunk."""
        self._close_chunk(self._sequences.pop(request_id))

    def finish(self) -> SaveReport:
        """Waits until every complete chunk is durable or dropped; counts since the start."""
        return self._writer.finish()

    def close(self) -> None:
        """Finishes and releases everything; the saver cannot be used afterwards."""
        for sequence in self._sequences.values():
            self._close_chunk(sequence)
        self._sequences.clear()
        self._writer.close()

    def _place(self, sequence: _Sequence, segment: Segment, position: int) -> int:
        """Places tokens from ``position`` to the end of their chunk; returns what follows them."""
        chunk_tokens = self._format.layout.chunk_tokens
        index, first_token = divmod(position, chunk_tokens)
        open_chunk = sequence.open_chunk or self._open(sequence, index)
        if open_chunk is None:
            return segment.stop_position
        stop = min(segment.stop_position, (index + 1) * chunk_tokens)
        first_row = segment.first_row + position - segment.first_position
        self._pieces.append(
            _Piece(
                states=open_chunk.states,
                rows=slice(first_row, first_row + stop - position),
                tokens=slice(first_token, first_token + stop - position),
            )
        )
        if stop == (index + 1) * chunk_tokens:
            sequence.open_chunk = None
            self._filled.append((sequence, open_chunk))
        return stop

    def _open(self, sequence: _Sequence, index: int) -> _OpenChunk | None:
        region = self._client.allocate(self._format.region_bytes(1))
        if region is None:
            self._writer.drop(sequence.chain, index)
            return None
        sequence.open_chunk = _OpenChunk(index, region, self._format.view(region, 1)[0])
        return sequence.open_chunk

    def _seal(self, sequence: _Sequence, open_chunk: _OpenChunk) -> FilledChunk | None:
        """The complete chunk with its key, or None when no key can be had."""
        index, region = open_chunk.index, open_chunk.region
        if index >= len(sequence.keys):
            sequence.keys = self._client.prefix_keys(self._format.layout, sequence.token_ids)
        if index >= len(sequence.keys):
            region.release()
            self._writer.drop(sequence.chain, index)
            return None
        return FilledChunk(
            chain=sequence.chain,
            chunk=NewChunk(
                key=sequence.keys[index],
                parent_key=sequence.keys[index - 1] if index else b"",
                token_count=self._format.layout.chunk_tokens,
                stripe=int.from_bytes(sequence.keys[0][:4], "little") + index,
            ),
            chunk_index=index,
            region=region,
        )

    def _close_chunk(self, sequence: _Sequence) -> None:
        if sequence.open_chunk is not None:
            sequence.open_chunk.region.release()
            sequence.open_chunk = None
