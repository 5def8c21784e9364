"""Restores a history into the processes that together run one model (HCache, section 5)."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from engine_adapters.reading.piece import Piece, pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.section import sections_of
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_projection import KvProjection
from engine_adapters.runner.model.rotary import rotate
from engine_adapters.runner.ranks.collective_calls import CollectiveCalls, RanksLostError
from engine_adapters.runner.ranks.model_part import ModelPart, even_share, sections_within
from engine_adapters.runner.restore.staging import staging_for
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Order, StateKind

LOGGER = logging.getLogger(__name__)

SPAN_BYTES = 64 * 1024 * 1024
"""Arena bytes of one process's share of a span at most, unless the caller chooses otherwise."""

TIMEOUT_S = 30.0
"""Longest that one restoration waits for the store; what is missing then is computed."""

GRACE_S = 5.0
"""How much longer it waits for the other processes: by then none of them waits for its store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """Processes of one model: ``tensor`` those that share layers, ``model`` all of them."""

    tensor: ProcessGroup
    model: ProcessGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Chunks that all processes restore together; this one reads ``own`` of them."""

    first_chunk: int
    chunk_count: int
    own: range


class ParallelRestorer:
    """One process's side of a restoration. Never raises because of the store or of a process.

    The processes of a tensor group read disjoint token shards of each layer and gather
    them, so that together they read one copy; each then makes the keys and values of its
    own heads. A stage reads its own layers only. Layers that the layout does not store are
    left to the caller, who recomputes them.

    Every process of the model must be given the same tokens and options, since they
    take part in the same collective calls; one whose store fails takes part as well, and
    what it cannot read is restored by none. Twice ``span_bytes`` should fit into the
    arena: one span is used while the next one is read. One thread only.

    A process that died or hangs is waited for until ``timeout_s + grace_s`` after the begin of a
    restoration. Then nothing is restored, and ``is_broken`` from there on: its groups may not be
    in step any more, so that it restores nothing again and makes no collective call. A model
    that lost a process cannot compute either; whoever runs it ends it or begins it anew.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        projections: Mapping[int, KvProjection],
        groups: RankGroups,
        *,
        part: ModelPart,
        device: torch.device,
        span_bytes: int = SPAN_BYTES,
        timeout_s: float = TIMEOUT_S,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``projections`` has one entry for each layer of ``part``, for its heads alone."""
        self._client = client
        self._format = state_format
        self._projections = projections
        self._groups = groups
        self._part = part
        self._device = device
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._clock = clock
        self._calls = CollectiveCalls(clock)
        self._staging = staging_for(device)
        self._rank = distributed.get_rank(groups.tensor)
        self._size = distributed.get_world_size(groups.tensor)
        self._sections = sections_within(sections_of(state_format.layout), part.layers)
        self._layers = [
            layer
            for section in self._sections
            for layer in range(section.first_layer, section.stop_layer)
        ]
        # The same in every process, whatever its stage: turns are taken together.
        self._share_chunks = max(1, span_bytes // state_format.span_bytes(1))
        empty = torch.empty(0, dtype=state_format.dtype, device=device)
        self._own_slices = self._all_slices = empty
        self._device_bytes = self._dram_bytes = 0
        self._deadline_s = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether a process was lost: nothing will be restored any more."""
        return self._calls.is_broken

    @torch.inference_mode()
    def restore(self, token_ids: Sequence[int], *, keys: Tensor, values: Tensor) -> RestoreReport:
        """Restores the longest prefix of ``token_ids`` that is stored, for this part.

        ``keys`` (rotated) and ``values`` are [layers, tokens, heads, head_dim] of the
        part, contiguous, on the device; the history begins at position 0. The last token
        is never restored. All processes report the same ``restored_tokens`` (what lies
        behind them in ``keys`` and ``values`` is undefined), and the bytes that they read
        themselves; 0 where a process is lost, though one that had the others' last word before
        that may report what it restored.
        """
        started_s = self._clock()
        if self.is_broken:
            return RestoreReport()
        self._deadline_s = started_s + self._timeout_s
        self._calls.deadline_s = self._deadline_s + self._grace_s
        self._device_bytes = self._dram_bytes = 0
        layout = self._format.layout
        chunk_keys = self._client.prefix_keys(layout, token_ids[:-1])
        match = self._client.match(layout, chunk_keys, lease_ms=int(self._timeout_s * 1000))
        try:
            chunk_count = self._least(match.chunk_count)
            pieces = pieces_of(chunk_keys[:chunk_count], chunk_tokens=layout.chunk_tokens)
            restored_chunks = self._restore(pieces, keys, values)
            self._staging.finish()
        except RanksLostError:
            LOGGER.exception("a process of the model is lost; nothing is restored any more")
            restored_chunks = 0
        finally:
            if match.lease is not None:
                match.lease.release()
        return RestoreReport(
            restored_tokens=restored_chunks * layout.chunk_tokens,
            device_bytes=self._device_bytes,
            dram_bytes=self._dram_bytes,
            duration_s=self._clock() - started_s,
        )

    def _restore(self, pieces: Sequence[Piece], keys: Tensor, values: Tensor) -> int:
        """Turn after turn; how many leading chunks every process has restored."""
        turns = self._turns(len(pieces))
        own = [pieces[turn.first_chunk + chunk] for turn in turns for chunk in turn.own]
        reader = SpanReader(
            self._client,
            self._format,
            known(own),
            ReadOptions(
                order=Order.LAYER_FIRST,
                span_chunks=self._share_chunks,
                sections=self._sections,
            ),
            remaining_s=self._remaining_s,
        )
        restored = 0
        try:
            for turn in turns:
                restored += self._least(self._load(turn, reader, keys, values))
                if restored < turn.first_chunk + turn.chunk_count:
                    break
        finally:
            reader.close()
            self._device_bytes, self._dram_bytes = reader.read_bytes()
        return restored

    def _turns(self, chunk_count: int) -> list[_Turn]:
        """The shares of whole turns are ``_share_chunks`` each, as the spans of the reader."""
        turns = []
        turn_chunks = self._share_chunks * self._size
        for first in range(0, chunk_count, turn_chunks):
            count = min(turn_chunks, chunk_count - first)
            own = even_share(count, self._rank, self._size)
            turns.append(_Turn(first_chunk=first, chunk_count=count, own=own))
        return turns

    def _load(self, turn: _Turn, reader: SpanReader, keys: Tensor, values: Tensor) -> int:
        """Layer after layer; how many leading chunks of the turn this process knows whole.

        It knows of its own share alone: what is missing from it ends the restoration.
        """
        if not self._layers:
            return turn.chunk_count
        span = reader.first() if turn.own else None
        present = 0 if span is None else span.chunk_count
        chunk_tokens = self._format.layout.chunk_tokens
        first = turn.first_chunk * chunk_tokens
        tokens = slice(first, first + turn.chunk_count * chunk_tokens)
        for layer in self._layers:
            reader.advance()
            if span is not None:
                present = min(present, span.wait_layer(layer, self._remaining_s()))
            slices = self._gather(turn, layer, span, present)
            local = layer - self._part.layers.start
            self._fill(layer, slices, first, keys[local, tokens], values[local, tokens])
        if span is not None:
            reader.give_back(span)
        return turn.chunk_count if present == len(turn.own) else turn.own.start + present

    def _remaining_s(self) -> float:
        return max(0.0, self._deadline_s - self._clock())

    def _gather(self, turn: _Turn, layer: int, span: Span | None, present: int) -> Tensor:
        """The slices of ``layer`` of all chunks of the turn: [chunks, elements].

        Chunks that did not arrive hold anything; they are behind what counts as restored.
        """
        elements = prod(self._format.slice_shape(layer))
        # Every process sends as much as the largest share, that of rank 0, holds.
        sent_chunks = len(even_share(turn.chunk_count, 0, self._size))
        own = self._own_slices = _room(self._own_slices, sent_chunks * elements)
        own = own[: sent_chunks * elements]
        if span is not None and present:
            states = span.states(layer, present)
            with self._staging.brought(states) as brought:
                own[: present * elements].view(states.shape).copy_(brought)
        if self._size == 1:
            return own.view(sent_chunks, elements)
        everything = self._all_slices = _room(self._all_slices, self._size * len(own))
        everything = everything[: self._size * len(own)]
        self._calls.make(
            lambda: distributed.all_gather_single(
                everything, own, group=self._groups.tensor, async_op=True
            )
        )
        parts = everything.view(self._size, sent_chunks, elements)
        if turn.chunk_count == self._size * sent_chunks:
            return parts.view(turn.chunk_count, elements)
        shares = [even_share(turn.chunk_count, rank, self._size) for rank in range(self._size)]
        return torch.cat([parts[rank, : len(share)] for rank, share in enumerate(shares)])

    def _fill(
        self, layer: int, slices: Tensor, first_position: int, keys: Tensor, values: Tensor
    ) -> None:
        """Makes keys and values [tokens, heads, head_dim] of this part's heads."""
        projection = self._projections[layer]
        if self._format.layout.layers[layer].kind is StateKind.HIDDEN:
            hidden = slices.view(len(keys), self._format.hidden_size)
            projection.apply(hidden, first_position=first_position, keys=keys, values=values)
            return
        heads = slice(self._part.heads.start, self._part.heads.stop)
        stored = slices.view(len(slices), *self._format.slice_shape(layer))[..., heads, :]
        by_chunk = (len(slices), -1, *keys.shape[1:])
        values.view(by_chunk).copy_(stored[:, 1])
        if projection.rotary is None:
            keys.view(by_chunk).copy_(stored[:, 0])
            return
        angles = projection.rotary.between(first_position, first_position + len(keys))
        rotate(stored[:, 0], angles.by_chunk(len(slices)), out=keys.view(by_chunk))

    def _least(self, count: int) -> int:
        """The least of the numbers that the processes of the model give."""
        number = torch.tensor([count], dtype=torch.int64, device=self._device)
        self._calls.make(
            lambda: distributed.all_reduce(
                number, distributed.ReduceOp.MIN, group=self._groups.model, async_op=True
            )
        )
        return int(number.item())


def _room(buffer: Tensor, count: int) -> Tensor:
    """``buffer``, or a new one if it has fewer than ``count`` elements."""
    return buffer if len(buffer) >= count else buffer.new_empty(count)
