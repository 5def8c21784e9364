"""One history that is restored span after span, layer after layer (HCache, section 4.1)."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.layer_loader import LayerLoader
from engine_adapters.runner.model import Model
from engine_adapters.runner.patience import Patience
from engine_adapters.runner.restoration import PIECE_TOKENS
from engine_adapters.runner.restore_report import RestoreReport
from engine_adapters.runner.span import Span
from engine_adapters.runner.span_reader import SpanReader
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import NullSink, Segment

LEAST_PIECE_TOKENS = 256
"""Tokens of a layer that are made while the others are still on their way. Smaller matrices would
be less efficient to multiply; larger ones leave the processor idle until a whole layer has come."""


class SpanSource(Protocol):
    """Where spans come from, in order."""

    @property
    def is_over(self) -> bool:
        """Whether there is no span and none will come."""

    def first(self) -> Span | None:
        """The span to use now; None while there is none."""

    def advance(self) -> None:
        """Called now and then, between pieces of work."""

    def pop(self) -> None:
        """Gives the first span back."""

    def wait_news(self, timeout_s: float) -> None:
        """Blocks until ``first`` may have a span, or the time is up."""

    def read_bytes(self) -> tuple[int, int]:
        """Bytes that came from devices and from DRAM so far."""

    def close(self) -> None:
        """Gives everything back."""


class StoredPrefix:
    """The spans of the longest stored prefix, read by a thread: no call waits for the store."""

    def __init__(self, reader: SpanReader) -> None:
        self._reader = reader
        self._is_asked_for = False

    @property
    def is_over(self) -> bool:
        """As ``SpanSource``."""
        return self._reader.is_ended and not self._reader.spans

    def first(self) -> Span | None:
        """As ``SpanSource``; asks for the spans when it is known what is stored."""
        is_stored = self._reader.is_stored
        if is_stored is not None and not self._is_asked_for:
            self._is_asked_for = True
            prefix = next((n for n, there in enumerate(is_stored) if not there), len(is_stored))
            self._reader.load([range(prefix)] if prefix else [])
        spans = self._reader.spans
        return spans[0] if spans else None

    def advance(self) -> None:
        """The thread needs no help."""

    def pop(self) -> None:
        """As ``SpanSource``."""
        self._reader.give_back(self._reader.spans[0])

    def wait_news(self, timeout_s: float) -> None:
        """As ``SpanSource``."""
        self._reader.wait_news(timeout_s)

    def read_bytes(self) -> tuple[int, int]:
        """As ``SpanSource``."""
        return self._reader.read_bytes()

    def close(self) -> None:
        """As ``SpanSource``; returns at once."""
        self._reader.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the states of a history go: slots of the cache, and positions in the sequence."""

    token_ids: Sequence[int]
    cache: KvCache
    first_slot: int
    first_position: int = 0


class SpanRestoration:
    """Makes keys and values of the longest prefix that is stored, piece by piece.

    While spans are read, the first layers are recomputed if the layout does not store them;
    then each layer is made from its stored states as they arrive. What is there of a layer of a
    span, or one step of recomputing, is a piece of work; how many are done between two steps
    of the engine depends on their tokens, so that many layers need no more steps than few.

    What is restored is the longest prefix of chunks that came whole, over all layers.
    Computing the rest begins when all of it is there.
    """

    def __init__(
        self,
        source: SpanSource,
        state_format: StateFormat,
        model: Model,
        loader: LayerLoader,
        target: Target,
        *,
        step_tokens: int,
        patience: Patience,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._format = state_format
        self._model = model
        self._loader = loader
        self._target = target
        self._step_tokens = step_tokens
        self._piece_chunks = max(1, LEAST_PIECE_TOKENS // state_format.layout.chunk_tokens)
        self._patience = patience
        self._clock = clock
        self._started_s = self._ended_s = clock()
        self._wait: Callable[[float], object] = source.wait_news
        self._restored_chunks = 0
        self._is_waiting = False
        self._is_over = False
        self._pieces = self._run()

    @property
    def position(self) -> int:
        """As ``Restoration``: 0 until everything is there."""
        return self._restored_tokens if self._is_over else 0

    @property
    def is_over(self) -> bool:
        """As ``Restoration``."""
        return self._is_over

    @property
    def is_loading(self) -> bool:
        """As ``Restoration``: until it is over."""
        return not self._is_over

    @property
    def is_waiting(self) -> bool:
        """As ``Restoration``."""
        return self._is_waiting

    def advance(
        self,
        token_budget: int,  # noqa: ARG002 - its pieces are its own
        *,
        piece_tokens: int = PIECE_TOKENS,
    ) -> int:
        """As ``Restoration``; asks for no tokens."""
        room = piece_tokens * self._format.layout.layer_count
        work: int | None = 1
        while work and room > 0:
            work = next(self._pieces, None)
            room -= work or 0
        self._is_waiting = work == 0
        if work is None and not self._is_over:
            self._loader.finish()
            self._ended_s = self._clock()
            self._is_over = True
        return 0

    def first_unstored(self) -> int:
        """As ``Restoration``."""
        return self.position

    def begin_step(self, token_count: int) -> None:
        """Never called: it asks for no tokens."""

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """Never called: it asks for no tokens."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``, no longer than the store may still be waited for."""
        self._wait(min(timeout_s, self._patience.remaining_s()))

    def report(self) -> RestoreReport:
        """As ``Restoration``."""
        device_bytes, dram_bytes = self._source.read_bytes()
        ended_s = self._ended_s if self._is_over else self._clock()
        return RestoreReport(
            restored_tokens=self.position,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            waited_s=self._patience.waited_s,
            duration_s=ended_s - self._started_s,
        )

    def close(self) -> None:
        """As ``Restoration``."""
        self._source.close()

    @property
    def _restored_tokens(self) -> int:
        return self._restored_chunks * self._format.layout.chunk_tokens

    def _run(self) -> Iterator[int]:
        """Yields behind each piece its tokens times its layers; 0 when there is nothing to do."""
        source = self._source
        while True:
            yield from self._waiting(
                lambda: source.first() is not None or source.is_over, source.wait_news
            )
            span = source.first()
            if span is None:
                return
            yield from self._recompute(span)
            chunk_count = yield from self._load(span)
            self._restored_chunks += chunk_count
            source.pop()
            if chunk_count < span.chunk_count:
                return

    def _waiting(
        self, is_ready: Callable[[], bool], wait: Callable[[float], object]
    ) -> Iterator[int]:
        """Yields 0 until something is ready, or the store was waited for too long."""
        if is_ready():
            return
        self._wait = wait
        self._patience.begin_wait()
        try:
            while self._patience.remaining_s() > 0:
                yield 0
                self._source.advance()
                if is_ready():
                    break
        finally:
            # A span that was waited for is not kept for longer than it is read.
            self._wait = self._source.wait_news
        self._patience.end_wait()

    def _recompute(self, span: Span) -> Iterator[int]:
        """Computes the layers that are not stored, of the chunks that may still come whole."""
        target = self._target
        if not self._format.recomputed_layers:
            return
        first = span.first_token
        while first < (stop := span.first_token + self._possible_tokens(span)):
            stop = min(stop, first + self._step_tokens)
            segment = Segment(
                request_id=-1,
                first_row=0,
                token_count=stop - first,
                first_position=first,
                first_slot=target.first_slot,
            )
            self._model.forward(
                target.token_ids[first:stop],
                [segment],
                cache=target.cache,
                sink=NullSink(),
                logit_rows=(),
                layer_stop=self._format.recomputed_layers,
            )
            work = (stop - first) * self._format.recomputed_layers
            first = stop
            self._source.advance()
            yield work

    def _possible_tokens(self, span: Span) -> int:
        return span.resident_chunks() * self._format.layout.chunk_tokens

    def _load(self, span: Span) -> Generator[int, None, int]:
        """Loads layer after layer; how many leading chunks came whole."""
        chunk_count = span.chunk_count
        for layer in range(self._format.recomputed_layers, self._format.layout.layer_count):
            self._source.advance()
            loaded = 0
            while loaded < chunk_count:
                wanted = min(loaded + self._piece_chunks, chunk_count)
                yield from self._waiting(
                    partial(_has_arrived, span, layer, wanted),
                    partial(self._wait_more, span, layer),
                )
                arrived = min(chunk_count, span.arrived_chunks(layer))
                if arrived < wanted:
                    # No more will come, or the store was waited for too long.
                    arrived = chunk_count = min(chunk_count, span.wait_layer(layer, 0.0))
                if arrived > loaded:
                    self._load_chunks(span, layer, loaded, arrived)
                    yield (arrived - loaded) * self._format.layout.chunk_tokens
                loaded = max(loaded, arrived)
            if chunk_count == 0:
                return 0
        return chunk_count

    def _load_chunks(self, span: Span, layer: int, first: int, stop: int) -> None:
        tokens_before = span.first_token + first * self._format.layout.chunk_tokens
        self._loader.load(
            layer,
            span.states(layer, stop - first, first_chunk=first),
            cache=self._target.cache,
            first_slot=self._target.first_slot + tokens_before,
            first_position=self._target.first_position + tokens_before,
        )

    def _wait_more(self, span: Span, layer: int, timeout_s: float) -> None:
        """Waits for the first chunk that is not there: those behind it may be there already."""
        if not span.is_layer_asked_for(layer):
            self._source.wait_news(timeout_s)
        elif (arrived := span.arrived_chunks(layer)) < span.chunk_count:
            span.wait_slice(layer, arrived, timeout_s)


def _has_arrived(span: Span, layer: int, chunk_count: int) -> bool:
    """Whether so many leading chunks of a layer are there, or not all of them ever will be."""
    arrived = span.arrived_chunks(layer)
    if arrived >= chunk_count or span.is_slice_lost(layer, arrived):
        return True
    # Of a session that is over nothing counts as there, and nothing more will come.
    return not span.is_current
