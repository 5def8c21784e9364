"""Restores a history into the processes that together run one model (HCache, section 5)."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from engine_adapters.device_copies.open_copies import open_copies
from engine_adapters.reading.piece import Piece, pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.section import Section, sections_of, sections_of_layers
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.restore import (
    LEAST_WAIT_S,
    ComputeCost,
    LoadLimit,
    TokenRange,
    first_span_chunks,
)
from engine_adapters.restore.stake import STAKE_SHARE
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_projection import KvProjection
from engine_adapters.runner.model.rotary import rotate
from engine_adapters.runner.ranks.bounded_match import match_within
from engine_adapters.runner.ranks.collective_calls import CollectiveCalls, RanksLostError
from engine_adapters.runner.ranks.model_shard import ModelShard
from engine_adapters.runner.ranks.share_gathering import ShareGathering
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Match, Order, StateKind

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOptions:
    """The same in every process."""

    span_bytes: int = 64 * 1024 * 1024
    """Arena bytes of one process's share of a span at most; twice as many should fit the arena."""
    timeout_s: float = 30.0
    """Longest that one restoration waits for the store; what is missing then is computed."""
    grace_s: float = 5.0
    """How much longer it waits for the other processes: by then none waits for its store."""
    compute: ComputeCost | None = None
    """What computing costs all processes together: then no restoration takes much longer than
    computing everything, whatever a store does. Without, ``timeout_s`` alone limits it."""
    step_tokens: float = 512.0
    """Tokens of one step in which that is computed."""
    least_wait_s: float = LEAST_WAIT_S
    """What is waited for in any case, however little there is to compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """Processes of one model: ``tensor`` those that share layers, ``model`` all of them."""

    tensor: ProcessGroup
    model: ProcessGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
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
    what it cannot read is restored by none. One span is used while the next one is read. One
    thread only.

    With ``compute`` a process whose store is slower than computing gives up what is missing, as
    ``Restorer`` does; the others hear of it at the end of the batch, so batches are small at
    first.

    A process that died or hangs is waited for until ``timeout_s + grace_s`` after the begin of a
    restoration. Then nothing is restored, and ``is_broken`` from there on: its groups may not be
    in step any more, so that it restores nothing again and makes no collective call. A model
    that lost a process cannot compute either; its operator ends or restarts it.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        projections: Mapping[int, KvProjection],
        groups: RankGroups,
        *,
        shard: ModelShard,
        device: torch.device,
        options: ParallelOptions | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``projections`` has one entry for each layer of ``shard``, for its heads alone."""
        self._client = client
        self._format = state_format
        self._projections = projections
        self._model = groups.model
        self._shard = shard
        self._device = device
        self._options = options or ParallelOptions()
        self._clock = clock
        self._calls = CollectiveCalls(clock)
        self._copies = open_copies(device)
        self._shares = ShareGathering(
            groups.tensor,
            self._calls,
            copies=self._copies,
            dtype=state_format.dtype,
            device=device,
        )
        self._sections = sections_of_layers(sections_of(state_format.layout), shard.layers)
        self._limit: LoadLimit | None = None
        self._read_bytes = (0, 0)
        """Of this restoration, from devices and from DRAM."""
        self._deadline_s = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether a process was lost: nothing will be restored any more."""
        return self._calls.is_broken

    @torch.inference_mode()
    def restore(self, token_ids: Sequence[int], *, keys: Tensor, values: Tensor) -> RestoreReport:
        """Restores the longest prefix of ``token_ids`` that is stored, for this shard.

        ``keys`` (rotated) and ``values`` are [layers, tokens, heads, head_dim] of the
        shard, contiguous, on the device; the history begins at position 0. The last token
        is never restored. All processes report the same ``restored_tokens`` (what lies
        behind them in ``keys`` and ``values`` is undefined), and the bytes that they read
        themselves; 0 where a process is lost, though one that had the others' last word before
        that may report what it restored.
        """
        started_s = self._clock()
        if self.is_broken:
            return RestoreReport()
        self._deadline_s = started_s + self._options.timeout_s
        self._calls.deadline_s = self._deadline_s + self._options.grace_s
        self._read_bytes = (0, 0)
        layout = self._format.layout
        chunk_keys = self._client.prefix_keys(layout, token_ids[:-1])
        match = match_within(
            self._client,
            layout,
            chunk_keys,
            lease_ms=int(self._options.timeout_s * 1000),
            wait_s=self._look_up_s(len(token_ids)),
            clock=self._clock,
        )
        match = match or Match(0, None)
        looked_up_s = self._clock() - started_s
        try:
            chunk_count = self._least(match.chunk_count)
            pieces = pieces_of(chunk_keys[:chunk_count], chunk_tokens=layout.chunk_tokens)
            restored_chunks = self._restore(pieces, keys, values, looked_up_s=looked_up_s)
            self._copies.mark().wait()
        except RanksLostError:
            LOGGER.exception("a process of the model is lost; nothing is restored any more")
            restored_chunks = 0
        finally:
            if match.lease is not None:
                match.lease.release()
        device_bytes, dram_bytes = self._read_bytes
        return RestoreReport(
            restored_tokens=restored_chunks * layout.chunk_tokens,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            duration_s=self._clock() - started_s,
        )

    def _look_up_s(self, token_count: int) -> float:
        """How long to wait for what is stored: all that a store may cost in vain."""
        options = self._options
        if options.compute is None:
            return options.timeout_s
        compute_s = options.compute.compute_s(0, token_count, options.step_tokens)
        return max(options.least_wait_s, STAKE_SHARE * compute_s)

    def _restore(
        self, pieces: Sequence[Piece], keys: Tensor, values: Tensor, *, looked_up_s: float
    ) -> int:
        """Batch after batch; how many leading chunks every process has restored.

        ``looked_up_s`` it was waited already to know what is stored.
        """
        batches = self._batches(len(pieces))
        own = [pieces[batch.first_chunk + chunk] for batch in batches for chunk in batch.own]
        self._limit = self._limit_of(len(pieces), own_chunks=len(own), looked_up_s=looked_up_s)
        self._calls.take_waited_s()
        reader = SpanReader(
            self._client,
            self._format,
            known(own),
            ReadOptions(
                order=Order.LAYER_FIRST,
                span_chunks=self._share_chunks,
                first_chunks=lambda _: self._first_share(len(pieces)),
                sections=self._sections,
            ),
            remaining_s=self._remaining_s,
        )
        restored = 0
        try:
            for batch in batches:
                restored += self._least(self._load(batch, reader, keys, values))
                if restored < batch.first_chunk + batch.chunk_count:
                    break
                if self._limit is not None:
                    self._limit.gain(*self._tokens_of(batch))
        finally:
            reader.close()
            self._read_bytes = reader.read_bytes()
        return restored

    def _limit_of(
        self, chunk_count: int, *, own_chunks: int, looked_up_s: float
    ) -> LoadLimit | None:
        """What loading may cost in vain; this process reads ``own_chunks`` of all."""
        options, layout = self._options, self._format.layout
        if options.compute is None or not (own_chunks and self._sections):
            return None
        layers = [layer for section in self._sections for layer in section_layers(section)]
        limit = LoadLimit(
            options.compute,
            TokenRange(0, chunk_count * layout.chunk_tokens),
            byte_count=own_chunks * sum(map(layout.slice_bytes, layers)),
            step_tokens=options.step_tokens,
            least_wait_s=options.least_wait_s,
            now_s=self._clock() - looked_up_s,
        )
        # It counts, but as no silence of the reader.
        limit.pass_over(looked_up_s)
        return limit

    @property
    def _share_chunks(self) -> int:
        """The same in every process, whatever its stage: batches are taken together."""
        return max(1, self._options.span_bytes // self._format.span_bytes(1))

    def _first_share(self, chunk_count: int) -> int:
        """Chunks of one process's share of the first batch; each later one has twice as many."""
        if self._options.compute is None:
            return self._share_chunks
        share = -(-chunk_count // self._shares.size)
        return first_span_chunks(share, span_chunks=self._share_chunks)

    def _batches(self, chunk_count: int) -> list[_Batch]:
        """The shares of whole batches have as many chunks as the spans of the reader."""
        batches: list[_Batch] = []
        first, share_chunks = 0, self._first_share(chunk_count)
        while first < chunk_count:
            count = min(share_chunks * self._shares.size, chunk_count - first)
            own = self._shares.share(count)
            batches.append(_Batch(first_chunk=first, chunk_count=count, own=own))
            first += count
            share_chunks = min(2 * share_chunks, self._share_chunks)
        return batches

    def _tokens_of(self, batch: _Batch) -> TokenRange:
        chunk_tokens = self._format.layout.chunk_tokens
        first = batch.first_chunk * chunk_tokens
        return TokenRange(first, first + batch.chunk_count * chunk_tokens)

    def _load(self, batch: _Batch, reader: SpanReader, keys: Tensor, values: Tensor) -> int:
        """Layer after layer; how many leading chunks of the batch this process knows whole.

        It knows of its own share alone: what is missing from it ends the restoration.
        """
        layers = [layer for section in self._sections for layer in section_layers(section)]
        if not layers:
            return batch.chunk_count
        span = reader.first() if batch.own else None
        present = 0 if span is None else span.chunk_count
        first = self._tokens_of(batch).first
        tokens = slice(*self._tokens_of(batch))
        is_waited_for = True
        for layer in layers:
            reader.advance()
            if span is not None:
                if is_waited_for:
                    is_waited_for = self._wait(batch, reader, span, layer)
                present = min(present, span.arrived_chunks(layer))
            slices = self._shares.gathered(
                span.states(layer, present) if span is not None and present else None,
                chunk_count=batch.chunk_count,
                elements=prod(self._format.slice_shape(layer)),
            )
            local = layer - self._shard.layers.start
            self._fill(layer, slices, first, keys[local, tokens], values[local, tokens])
        if span is not None:
            reader.give_back(span)
        return batch.chunk_count if present == len(batch.own) else batch.own.start + present

    def _wait(self, batch: _Batch, reader: SpanReader, span: Span, layer: int) -> bool:
        """Waits for a layer of this process's share; False where computing would be sooner."""
        limit = self._limit
        while not span.is_layer_settled(layer):
            wait_s = self._remaining_s()
            if limit is not None:
                # The others may be slow; this process's store was not silent meanwhile.
                limit.pass_over(self._calls.take_waited_s())
                limit.look(self._clock(), sum(reader.read_bytes()))
                missing_bytes = max(0, span.payload_bytes - sum(span.read_bytes()))
                tokens = self._tokens_of(batch)
                if not limit.is_waited_for(*tokens, missing_bytes=missing_bytes):
                    return False
                wait_s = min(wait_s, limit.look_s)
            span.wait_layer(layer, wait_s)
            if self._remaining_s() == 0:
                break
            reader.advance()
        return True

    def _remaining_s(self) -> float:
        return max(0.0, self._deadline_s - self._clock())

    def _fill(
        self, layer: int, slices: Tensor, first_position: int, keys: Tensor, values: Tensor
    ) -> None:
        """Makes keys and values [tokens, heads, head_dim] of this shard's heads."""
        projection = self._projections[layer]
        if self._format.layout.layers[layer].kind is StateKind.HIDDEN:
            hidden = slices.view(len(keys), self._format.hidden_size)
            projection.apply(hidden, first_position=first_position, keys=keys, values=values)
            return
        heads = slice(self._shard.heads.start, self._shard.heads.stop)
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
                number, distributed.ReduceOp.MIN, group=self._model, async_op=True
            )
        )
        return int(number.item())


def section_layers(section: Section) -> range:
    """The layers that one read brings."""
    return range(section.first_layer, section.stop_layer)
