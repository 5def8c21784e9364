"""Restores a history by a token-wise partition, for the comparison with layers."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.restore.token_partition.partition import TokenPart, TokenPartition
from benchmarks.restore.token_partition.parts import ComputedPart, RestoredPart, StoredPart
from benchmarks.restore.token_partition.token_reads import round_count, slices_in_flight
from engine_adapters.reading.piece import Piece, pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.restore import Source
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.awaited_chunks import Patience
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.restore_options import (
    SPAN_BYTES,
    SPAN_TOKENS,
    STEP_TOKENS,
    TIMEOUT_S,
    RestoreOptions,
)
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Lease, Order

SLICES_IN_FLIGHT = 8
"""Slices of two reads in flight at once, together: as many as the daemon keeps in flight on
one device unless told otherwise. With more it would take one of each read in turn."""

LOOK_INTERVAL_S = 0.001
"""Who waits for one read looks at the other so often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A part and the chunks of the history that its layout has of it."""

    part: TokenPart
    chunks: range
    pieces: Sequence[Piece]

    @property
    def source(self) -> Source:
        """What its layout stores."""
        return self.part.source


class TokenPartitionRestorer:
    """Fills cache slots token-wise (HCache, sections 4.1.1 and 6.3.2, figure 8c).

    Never raises because of the store. Every layer of the first tokens is projected from
    hidden states and of the others loaded as keys and values, or the first tokens are
    computed and the others projected, while the next layers are being read. The two reads of
    a partition with KV get on in proportion, so that both parts of a layer come together.
    Histories that exceed a span are cut into rounds, each with the same share of both parts.
    A split need not lie between chunks: a chunk that it cuts is read in both forms.

    What is there in the end is the longest prefix of which every token came whole, over all
    layers, to the token: computed tokens, which wait for nothing and need no store, and
    behind them the leading tokens of complete chunks. Everything else is left to be computed.

    The history is stored whole in two layouts, as the modes ``hidden`` and ``kv`` store it
    (two ``StateSaver`` beside each other), because a balance shifts with the length of the
    history: a saver that stored each token once would have to know the final length, or
    store tokens near the split again in their other form as the history grows.
    ``kv_format`` is used for partitions with KV only. One thread only.
    """

    def __init__(
        self,
        client: Client,
        model: Model,
        *,
        hidden_format: StateFormat,
        kv_format: StateFormat,
        span_bytes: int = SPAN_BYTES,
        span_tokens: int = SPAN_TOKENS,
        step_tokens: int = STEP_TOKENS,
        slices_in_flight: int = SLICES_IN_FLIGHT,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``span_bytes`` and ``span_tokens`` bound what both parts read at a time, together.

        Raises ValueError for a layout that stores other states than its name says, and for
        options that make no sense.
        """
        RestoreOptions(timeout_s=timeout_s, step_tokens=step_tokens)
        self._formats = {Source.HIDDEN: hidden_format, Source.KV: kv_format}
        for source, state_format in self._formats.items():
            if any(state.kind is not source.kind for state in state_format.layout.layers):
                raise ValueError(
                    f"{source}_format must store {source} of all layers: make it with "
                    f"LayerSchedule.of((Source.{source.name}, layers))"
                )
        if hidden_format.layout.chunk_tokens != kv_format.layout.chunk_tokens:
            raise ValueError("hidden_format and kv_format must have chunks of as many tokens")
        self._client = client
        self._model = model
        self._loaders = {
            source: LayerLoader(model, state_format)
            for source, state_format in self._formats.items()
        }
        self._chunk_tokens = hidden_format.layout.chunk_tokens
        self._span_bytes = span_bytes
        self._span_tokens = span_tokens
        self._step_tokens = step_tokens
        self._slices_in_flight = slices_in_flight
        self._timeout_s = timeout_s
        self._clock = clock

    def restore(
        self,
        token_ids: Sequence[int],
        partition: TokenPartition,
        *,
        cache: KvCache,
        first_slot: int,
    ) -> RestoreReport:
        """Restores the tokens of ``partition``, those from the first of ``token_ids`` on.

        Token i is at position i; its slot is ``first_slot`` + i. ``restored_tokens`` counts
        computed tokens as well. Raises ValueError for a partition
        that has the last token or more: its logits are wanted, so it is never restored.
        """
        if partition.token_count >= len(token_ids):
            raise ValueError(
                f"a partition of {partition.token_count} tokens does not fit a history of "
                f"{len(token_ids)}, whose last token is never restored: leave that one out"
            )
        started_s = self._clock()
        patience = Patience(self._timeout_s, self._clock)
        target = Target(token_ids=token_ids, cache=cache, first_slot=first_slot)
        leases: list[Lease] = []
        parts: list[RestoredPart] = []
        try:
            parts = self._parts(partition, target, patience, leases)
            while live := _live(parts):
                self._go_on(live, patience)
            for loader in self._loaders.values():
                loader.finish()
        finally:
            stored = [part for part in parts if isinstance(part, StoredPart)]
            for part in stored:
                part.close()
            for lease in leases:
                lease.release()
        read_bytes = [part.read_bytes() for part in stored]
        return RestoreReport(
            restored_tokens=_reached(parts),
            device_bytes=sum(device_bytes for device_bytes, _ in read_bytes),
            dram_bytes=sum(dram_bytes for _, dram_bytes in read_bytes),
            waited_s=patience.waited_s,
            duration_s=self._clock() - started_s,
        )

    def _parts(
        self,
        partition: TokenPartition,
        target: Target,
        patience: Patience,
        leases: list[Lease],
    ) -> list[RestoredPart]:
        """In the order of their tokens, up to the first one that is not stored whole."""
        found = self._found(partition, target.token_ids, leases)
        rounds = round_count(
            partition.token_count,
            sum(self._formats[one.source].span_bytes(len(one.chunks)) for one in found),
            round_tokens=self._span_tokens,
            round_bytes=self._span_bytes,
        )
        span_chunks = {one.source: -(-len(one.chunks) // rounds) for one in found}
        windows_bytes = self._windows_bytes(span_chunks)
        parts: list[RestoredPart] = []
        for part in partition.parts:
            if part.source is Source.COMPUTE:
                step_tokens = min(self._step_tokens, -(-part.tokens.token_count // rounds))
                parts.append(ComputedPart(part, self._model, target, step_tokens=step_tokens))
        for one in found:
            reader = SpanReader(
                self._client,
                self._formats[one.source],
                known(one.pieces),
                ReadOptions(
                    order=Order.LAYER_FIRST,
                    span_chunks=max(1, span_chunks[one.source]),
                    window_bytes=windows_bytes.get(one.source, 0),
                ),
                remaining_s=patience.remaining_s,
            )
            parts.append(
                StoredPart(
                    one.part,
                    one.chunks,
                    reader,
                    self._formats[one.source],
                    self._loaders[one.source],
                    target,
                    remaining_s=patience.remaining_s,
                )
            )
        return parts

    def _found(
        self, partition: TokenPartition, token_ids: Sequence[int], leases: list[Lease]
    ) -> list[_Found]:
        """What is stored of the parts that are: leading chunks of each, kept by ``leases``."""
        found: list[_Found] = []
        for part in partition.parts:
            if part.source is Source.COMPUTE:
                continue
            layout = self._formats[part.source].layout
            keys = self._client.prefix_keys(layout, token_ids[:-1])
            chunks = part.chunks(self._chunk_tokens, chunk_count=len(keys))
            pieces = pieces_of(keys, chunk_tokens=self._chunk_tokens)[chunks.start : chunks.stop]
            keys = [piece.key for piece in pieces]
            match = self._client.match(layout, keys, lease_ms=int(self._timeout_s * 1000))
            if match.lease is not None:
                leases.append(match.lease)
            chunks = chunks[: match.chunk_count]
            found.append(_Found(part=part, chunks=chunks, pieces=pieces[: len(chunks)]))
            if part.reached(self._chunk_tokens, stop_chunk=chunks.stop) < part.tokens.stop:
                # Tokens behind a gap are of no use.
                break
        return found

    def _windows_bytes(self, span_chunks: Mapping[Source, int]) -> dict[Source, int]:
        """Of two reads beside each other; of one alone the daemon knows better."""
        hidden_chunks, kv_chunks = (span_chunks.get(source, 0) for source in self._formats)
        if not hidden_chunks or not kv_chunks:
            return {}
        slices = slices_in_flight(hidden_chunks, kv_chunks, total=self._slices_in_flight)
        return {
            source: count * self._formats[source].layout.slice_bytes(0)
            for source, count in zip(self._formats, slices, strict=True)
        }

    def _go_on(self, live: Sequence[RestoredPart], patience: Patience) -> None:
        """One piece of work of the part that is furthest behind, or a wait for the store."""
        ready = [part for part in live if part.is_ready()]
        if ready:
            min(ready, key=lambda part: part.progress).go_on()
            return
        stored = [part for part in live if isinstance(part, StoredPart)]
        reading = [part for part in stored if part.is_reading]
        if not reading:
            # The arena has no room for a span, or no read may start any more.
            for part in stored:
                part.give_up()
            return
        remaining_s = patience.remaining_s()
        patience.begin_wait()
        behind = min(reading, key=lambda part: part.progress)
        behind.wait(remaining_s if len(live) == 1 else min(remaining_s, LOOK_INTERVAL_S))
        patience.end_wait()


def _live(parts: Sequence[RestoredPart]) -> list[RestoredPart]:
    """The parts that still get on; those behind one that ended early are of no use."""
    live = []
    for part in parts:
        if not part.is_over:
            live.append(part)
        elif not part.is_whole:
            break
    return live


def _reached(parts: Sequence[RestoredPart]) -> int:
    """Leading tokens of the history that are in the cache."""
    reached = 0
    for part in parts:
        reached = part.reached
        if not part.is_whole:
            break
    return reached
