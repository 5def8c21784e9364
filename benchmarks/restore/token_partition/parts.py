"""The parts of a history that is restored by tokens: each gets on by itself, in any order."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from benchmarks.restore.token_partition.chunk_cut import cuts_of
from benchmarks.restore.token_partition.partition import TokenPart
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import TokenRange
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import StateKind


class RestoredPart(Protocol):
    """One part of a token-wise partition while it is restored."""

    @property
    def reached(self) -> int:
        """The token of the history behind those of this part that are in the cache."""

    @property
    def is_whole(self) -> bool:
        """Whether all tokens of the part are in the cache."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""

    @property
    def progress(self) -> float:
        """Share of the part's work that is done, below 1 until it is over."""

    def is_ready(self) -> bool:
        """Whether ``go_on`` has something to do; called often, because it starts reads too."""

    def go_on(self) -> None:
        """Does one piece of work: one layer of a span, or one step of computing."""


class ComputedPart:
    """First tokens, computed with all their layers, ``step_tokens`` at a time."""

    def __init__(self, part: TokenPart, model: Model, target: Target, *, step_tokens: int) -> None:
        self._tokens = part.tokens
        self._model = model
        self._target = target
        self._step_tokens = step_tokens
        self._reached = part.tokens.first

    @property
    def reached(self) -> int:
        """As ``RestoredPart``."""
        return self._reached

    @property
    def is_whole(self) -> bool:
        """As ``RestoredPart``."""
        return self._reached == self._tokens.stop

    @property
    def is_over(self) -> bool:
        """As ``RestoredPart``."""
        return self.is_whole

    @property
    def progress(self) -> float:
        """As ``RestoredPart``."""
        return (self._reached - self._tokens.first) / self._tokens.token_count

    def is_ready(self) -> bool:
        """As ``RestoredPart``: it waits for nothing."""
        return True

    def go_on(self) -> None:
        """As ``RestoredPart``."""
        first = self._reached
        stop = min(self._tokens.stop, first + self._step_tokens)
        segment = Segment(
            request_id=-1,
            first_row=0,
            token_count=stop - first,
            first_position=first,
            first_slot=self._target.first_slot,
        )
        self._model.forward(
            self._target.token_ids[first:stop],
            [segment],
            cache=self._target.cache,
            sink=NullSink(),
            logit_rows=(),
        )
        self._reached = stop


class StoredPart:
    """Tokens whose states come from one layout, layer after layer of each span.

    ``chunks`` are those of the history that ``reader`` brings. A chunk that the partition cuts
    is read whole, and only its tokens of this part are used.
    """

    def __init__(
        self,
        part: TokenPart,
        chunks: range,
        reader: SpanReader,
        state_format: StateFormat,
        loader: LayerLoader,
        target: Target,
        *,
        remaining_s: Callable[[], float],
    ) -> None:
        self._part = part
        self._chunks = chunks
        self._reader = reader
        self._layout = state_format.layout
        self._chunk_tokens = state_format.layout.chunk_tokens
        self._layer_count = state_format.layout.layer_count
        self._loader = loader
        self._target = target
        self._remaining_s = remaining_s
        self._came_chunks = 0
        """Chunks of the spans that are used up."""
        self._layer = 0
        """Of the first span, the layer to be loaded next."""
        self._present: int | None = None
        """Leading chunks of the first span that came in all layers so far; None: all."""
        self._is_cut = False

    @property
    def reached(self) -> int:
        """As ``RestoredPart``."""
        stop_chunk = self._chunks.start + self._came_chunks
        return self._part.reached(self._chunk_tokens, stop_chunk=stop_chunk)

    @property
    def is_whole(self) -> bool:
        """As ``RestoredPart``."""
        return self.reached == self._part.tokens.stop

    @property
    def is_over(self) -> bool:
        """As ``RestoredPart``."""
        return self._is_cut or self._came_chunks == len(self._chunks)

    @property
    def progress(self) -> float:
        """As ``RestoredPart``, by layers of chunks."""
        span = self._reader.first()
        done = self._came_chunks * self._layer_count
        if span is not None:
            done += span.chunk_count * self._layer
        return done / (len(self._chunks) * self._layer_count)

    @property
    def is_reading(self) -> bool:
        """Whether there is a span on its way; the arena may have no room for one."""
        return self._reader.first() is not None

    def is_ready(self) -> bool:
        """As ``RestoredPart``; whatever is there is used when the store may not be waited for."""
        span = self._reader.first()
        if span is None:
            return False
        return span.is_layer_settled(self._layer) or self._remaining_s() <= 0

    def go_on(self) -> None:
        """As ``RestoredPart``."""
        span = self._reader.first()
        assert span is not None
        present = span.wait_layer(self._layer, 0.0)
        if self._present is not None:
            present = min(present, self._present)
        self._present = present
        first_token = (self._chunks.start + span.first_chunk) * self._chunk_tokens
        tokens = TokenRange(
            max(self._part.tokens.first, first_token),
            min(self._part.tokens.stop, first_token + present * self._chunk_tokens),
        )
        if tokens.token_count > 0:
            self._load(
                span.states(self._layer, present),
                tokens,
                TokenRange(tokens.first - first_token, tokens.stop - first_token),
            )
        self._layer += 1
        if present == 0 or self._layer == self._layer_count:
            self._end_span(span, present)

    def wait(self, timeout_s: float) -> None:
        """Blocks until the next layer has settled, or the time is up."""
        span = self._reader.first()
        if span is not None:
            span.wait_layer(self._layer, timeout_s)

    def give_up(self) -> None:
        """What has not come is left to be computed."""
        self._is_cut = True

    def read_bytes(self) -> tuple[int, int]:
        """Bytes that came from devices and from DRAM, once it is closed."""
        return self._reader.read_bytes()

    def close(self) -> None:
        """Gives everything back."""
        self._reader.close()

    def _load(self, states: Tensor, tokens: TokenRange, local: TokenRange) -> None:
        """Loads the tokens ``local`` of the states, which are ``tokens`` of the history."""
        if self._layout.layers[self._layer].kind is StateKind.HIDDEN:
            # As one projection: they lie one after the other.
            rows = states.reshape(1, -1, states.shape[-1])
            self._load_cut(rows[:, local.first : local.stop], tokens.first)
            return
        first = tokens.first
        for cut in cuts_of(local, self._chunk_tokens):
            chunks = states[cut.chunks.start : cut.chunks.stop]
            self._load_cut(chunks[:, :, cut.tokens.start : cut.tokens.stop], first)
            first += cut.token_count

    def _load_cut(self, states: Tensor, first: int) -> None:
        landing = self._loader.load(
            self._layer,
            states,
            cache=self._target.cache,
            first_slot=self._target.first_slot + first,
            first_position=first,
        )
        # This benchmark is one of CPUs: it is over.
        landing.wait()

    def _end_span(self, span: Span, present: int) -> None:
        self._came_chunks += present
        self._is_cut = present < span.chunk_count
        self._layer, self._present = 0, None
        self._reader.give_back(span)
