"""One history that is restored span after span, layer after layer (HCache, section 4.1)."""

from collections.abc import Callable, Generator, Iterator
from functools import partial

from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import Verdict
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.awaited_chunks import Patience
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat

LEAST_PIECE_TOKENS = 256
"""Tokens of a layer that are made while the others are still on their way. Smaller matrices would
be less efficient to multiply; larger ones leave the processor idle until a whole layer has come."""
LAUNCHED_PIECE_TOKENS = 1024
"""The same where work is only launched, which takes as long for few tokens as for many."""

NEEDS_STEP = -1
"""Yielded instead of work that was done: the engine shall compute tokens."""


class SpanRestoration:
    """Makes keys and values of the longest prefix that is stored, piece by piece.

    While spans are read, the first layers of each are recomputed, those that the layout does
    not store and as many more as is worth it when the span is asked for;
    then each layer is made from its stored states as they arrive. What is there of a layer of a
    span, or one step of recomputing, is a piece of work; how many are done between two steps
    of the engine depends on their tokens, so that many layers need no more steps than few.

    What is restored is the longest prefix of chunks that came whole, over all layers, but for
    spans that are computed because ``limit`` says that loading them takes too long: the engine is
    asked for their tokens while the next span is read. Computing what is behind all of them
    begins when it is over.
    """

    def __init__(
        self,
        source: SpanReader,
        state_format: StateFormat,
        model: Model,
        loader: LayerLoader,
        target: Target,
        limit: LoadingLimit,
        options: RestoreOptions,
    ) -> None:
        self._source = source
        self._format = state_format
        self._model = model
        self._loader = loader
        self._target = target
        self._step_tokens = options.step_tokens
        least_tokens = LEAST_PIECE_TOKENS if loader.is_on_cpu else LAUNCHED_PIECE_TOKENS
        self._piece_chunks = max(1, least_tokens // state_format.layout.chunk_tokens)
        self._patience = Patience(options.timeout_s, options.clock)
        self._limit = limit
        self._clock = options.clock
        self._started_s = self._ended_s = self._clock()
        self._wait: Callable[[float], object] = source.wait_news
        self._position = 0
        self._loaded_tokens = 0
        self._compute_stop = 0
        self._is_computing = False
        self._is_over = False
        self._pieces = self._run()

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``: it loads until it is over, but while its tokens are computed."""
        return RestorationState(
            position=self._position,
            is_over=self._is_over,
            is_loading=not (self._is_over or self._is_computing),
            is_waiting=self._patience.is_waiting,
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; asks for tokens only where loading them takes too long."""
        source, limit = self._source, self._limit
        limit.begin_look(source, was_waiting=self._patience.is_waiting)
        room = piece_tokens * self._format.layout.layer_count
        work: int | None = 1
        while work is not None and work > 0 and room > 0:
            work = next(self._pieces, None)
            room -= work or 0
        limit.end_look()
        self._is_computing = work == NEEDS_STEP
        if self._is_computing:
            # The step attends to all that was loaded before it.
            self._loader.finish()
            return min(token_budget, self._compute_stop - self._position)
        if work is None and not self._is_over:
            self._loader.finish()
            self._ended_s = self._clock()
            self._is_over = True
        return 0

    def _first_unstored(self) -> int:
        chunk_tokens = self._format.layout.chunk_tokens
        chunk = -(-self._position // chunk_tokens)
        if not self._is_over:
            chunk = max(chunk, self._stored_chunks)
        return chunk * chunk_tokens

    def begin_step(self, token_count: int) -> int:
        """As ``Restoration``."""
        del token_count
        return self._first_unstored()

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""
        first, self._position = self._position, self._position + token_count
        self._limit.end_step(first, self._position, duration_s, step_tokens=step_tokens)

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``, no longer than the store may still be waited for."""
        self._wait(min(timeout_s, self._patience.remaining_s(), self._limit.wait_s_max))

    def close(self) -> RestoreReport:
        """As ``Restoration``."""
        self._source.close()
        self._limit.share.end()
        device_bytes, dram_bytes = self._source.read_bytes()
        ended_s = self._ended_s if self._is_over else self._clock()
        return RestoreReport(
            restored_tokens=self._loaded_tokens,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            waited_s=self._patience.waited_s,
            duration_s=ended_s - self._started_s,
            recomputed_layer_tokens=self._limit.recomputed_layer_tokens,
            made_s=self._limit.made_s,
            first_unstored=self._first_unstored(),
        )

    @property
    def _stored_chunks(self) -> int:
        stored = self._source.stored
        return 0 if stored is None else stored.prefix_chunks

    def _run(self) -> Iterator[int]:
        """Yields behind each piece its tokens times its layers; 0 when there is nothing to do.

        NEEDS_STEP where tokens before ``_compute_stop`` are to be computed.
        """
        source = self._source

        def has_news() -> bool:
            return source.first() is not None or source.is_over

        while True:
            verdict = yield from self._waiting(
                has_news, source.wait_news, partial(self._limit.opening, self._position)
            )
            span = source.first()
            if span is None:
                stored_tokens = self._stored_chunks * self._format.layout.chunk_tokens
                if verdict is Verdict.WAIT or source.is_over or self._position >= stored_tokens:
                    return
                yield from self._computing(stored_tokens, until=has_news)
                continue
            is_whole = yield from self._take(span)
            source.give_back(span)
            if not is_whole:
                return
            if self._position < span.stop_token:
                yield from self._computing(self._dropped_stop(span))

    def _take(self, span: Span) -> Generator[int, None, bool]:
        """Loads a span, or gives it up; False when a chunk of it is lost.

        Tokens of it behind ``position`` are still to be computed where it was given up.
        """
        stop = span.stop_token
        while self._position < stop:
            chunk_count, verdict = 0, (yield from self._afford(span))
            if verdict is Verdict.WAIT:
                yield from self._recompute(span)
                chunk_count, verdict = yield from self._load(span)
            if verdict is Verdict.DROP:
                return True
            if verdict is Verdict.COMPUTE:
                yield from self._computing(stop, until=partial(_is_settled, span))
                continue
            self._note_loaded(span, chunk_count)
            return chunk_count == span.chunk_count
        return True

    def _dropped_stop(self, span: Span) -> int:
        """How far to compute for a span that was dropped: whole steps, small ones cost more.

        What is computed of the next span is not needed of it.
        """
        stored_tokens = self._stored_chunks * self._format.layout.chunk_tokens
        step_stop = min(self._position + self._step_tokens, stored_tokens)
        return max(span.stop_token, step_stop)

    def _note_loaded(self, span: Span, chunk_count: int) -> None:
        """So many leading chunks of the span are in the cache."""
        stop = span.pieces[chunk_count - 1].stop_position if chunk_count else 0
        if stop > self._position:
            self._limit.gain(self._position, stop)
            self._loaded_tokens += stop - self._position
            self._position = stop

    def _computing(self, stop: int, *, until: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Asks for the tokens before ``stop``, until they are computed or need not be."""
        self._compute_stop = stop
        while self._position < stop and not until():
            yield NEEDS_STEP
            self._source.advance()

    def _waiting(
        self,
        is_ready: Callable[[], bool],
        wait: Callable[[float], object],
        judge: Callable[[], Verdict],
    ) -> Generator[int, None, Verdict]:
        """Yields 0 until something is ready, or the store was waited for too long.

        Anything but WAIT says that it need not be waited for any more.
        """
        verdict = Verdict.WAIT
        if is_ready():
            return verdict
        self._wait = wait
        self._patience.begin_wait()
        try:
            while self._patience.remaining_s() > 0 and (verdict := judge()) is Verdict.WAIT:
                yield 0
                self._source.advance()
                if is_ready():
                    break
        finally:
            # A span that was waited for is not kept for longer than it is read.
            self._wait = self._source.wait_news
        self._patience.end_wait()
        return verdict

    def _afford(self, span: Span) -> Generator[int, None, Verdict]:
        """Waits where recomputing the first layers is more than may be lost with the others."""
        layer_count = self._format.layout.layer_count
        share = span.layers.start / layer_count
        if not share or self._limit.affords(span, self._position, share=share):
            return Verdict.WAIT
        return (
            yield from self._waiting(
                partial(_is_settled, span),
                partial(self._wait_more, span, layer_count - 1),
                partial(self._limit.judge, span, self._position, span.stop_token),
            )
        )

    def _recompute(self, span: Span) -> Iterator[int]:
        """Computes the layers that are not stored, of the chunks that may still come whole."""
        target = self._target
        layers = span.layers.start
        if not layers:
            return
        first = max(self._position, span.pieces[0].first_position)
        while resident := _resident_chunks(span):
            stop = span.pieces[resident - 1].stop_position
            if first >= stop:
                break
            started_s = self._clock()
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
                layer_stop=layers,
            )
            work = (stop - first) * layers
            first = stop
            self._limit.end_recompute(self._clock() - started_s, layer_tokens=work)
            self._source.advance()
            yield work

    def _load(self, span: Span) -> Generator[int, None, tuple[int, Verdict]]:
        """Loads layer after layer of what is not computed; how many leading chunks came whole.

        Anything but WAIT says that the span is not loaded, or not yet.
        """
        chunk_count = span.chunk_count
        first_chunk = sum(piece.stop_position <= self._position for piece in span.pieces)
        judge = partial(self._limit.judge, span, self._position, span.stop_token)
        for layer in span.layers:
            self._source.advance()
            loaded = min(first_chunk, chunk_count)
            while loaded < chunk_count:
                wanted = min(loaded + self._piece_chunks, chunk_count)
                verdict = Verdict.WAIT if _is_settled(span) else judge()
                if verdict is Verdict.WAIT:
                    verdict = yield from self._waiting(
                        partial(_has_arrived, span, layer, wanted),
                        partial(self._wait_more, span, layer),
                        judge,
                    )
                if verdict is not Verdict.WAIT:
                    return 0, verdict
                arrived = min(chunk_count, span.arrived_chunks(layer))
                if arrived < wanted:
                    # No more will come, or the store was waited for too long.
                    arrived = chunk_count = min(chunk_count, span.wait_layer(layer, 0.0))
                if arrived > loaded:
                    self._load_chunks(span, layer, loaded, arrived)
                    yield (arrived - loaded) * self._format.layout.chunk_tokens
                loaded = max(loaded, arrived)
            if chunk_count == 0:
                break
        return chunk_count, Verdict.WAIT

    def _load_chunks(self, span: Span, layer: int, first: int, stop: int) -> None:
        started_s = self._clock()
        self._loader.load_pieces(span, layer, range(first, stop), self._target)
        self._limit.end_take(
            layer,
            self._clock() - started_s,
            layer_tokens=(stop - first) * self._format.layout.chunk_tokens,
        )

    def _wait_more(self, span: Span, layer: int, timeout_s: float) -> None:
        """Waits for the first chunk that is not there: those behind it may be there already.

        For the end of all reads where no chunk of the layer can still come.
        """
        if span.reads.read_of(layer) is None:
            self._source.wait_news(timeout_s)
            return
        arrived = span.arrived_chunks(layer)
        if arrived < span.chunk_count and not span.is_lost(arrived, layer):
            span.wait(arrived, layer, timeout_s=timeout_s)
        else:
            span.wait_end(timeout_s)


def _resident_chunks(span: Span) -> int:
    """Leading chunks that may still come whole: all but what is known to be lost."""
    lost = (chunk for chunk in range(span.chunk_count) if span.is_lost(chunk))
    return next(lost, span.chunk_count)


def _has_arrived(span: Span, layer: int, chunk_count: int) -> bool:
    """Whether so many leading chunks of a layer are there, or not all of them ever will be."""
    arrived = span.arrived_chunks(layer)
    # Of a session that is over nothing counts as there, and nothing more will come.
    return arrived >= chunk_count or not span.is_current or span.is_lost(arrived, layer)


def _is_settled(span: Span) -> bool:
    """Whether nothing more of it is on its way."""
    return span.is_finished or not span.is_current
