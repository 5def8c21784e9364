"""A conversation whose window is loaded from stored pieces, span after span."""

from collections.abc import Callable, Iterator
from functools import partial

from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import Verdict
from engine_adapters.runner.conversation.stored_window import StoredWindow
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.restore.awaited_chunks import Patience
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.layered_history import Reached
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.states.state_format import StateFormat


class PieceRestoration:
    """Fills the cache with a window that cuts have left, from the pieces that are stored.

    What is restored are the chunks that came whole, one after the other, as far as computing can go
    on from there: where a chunk is lost before the last cut, nothing is, and the engine computes
    everything again, cuts included.
    Positions of ``state`` are numbers among all tokens, those of ``limit`` are in the window.

    What ``limit`` says costs too much to wait for counts as lost. It takes each span that came as
    gained, also before the last cut: a store that falls silent there has cost what these spans took
    as well. The engine's thread only.
    """

    def __init__(
        self,
        reader: SpanReader,
        window: StoredWindow,
        state_format: StateFormat,
        loader: LayerLoader,
        limit: LoadingLimit,
        options: RestoreOptions,
        *,
        settle: Callable[[int], None],
    ) -> None:
        """``settle`` tells ``limit`` from which token on only what is missing is computed."""
        self._settle: Callable[[int], None] | None = settle
        self._reader = reader
        self._window = window
        self._layout = state_format.layout
        self._loader = loader
        self._limit = limit
        self._patience = Patience(options.timeout_s, options.clock)
        self._clock = options.clock
        self._started_s = self._ended_s = self._clock()
        self._wait: Callable[[float], object] = reader.wait_news
        self._loaded_chunks = 0
        self._reached = Reached()
        self._is_over = False
        self._work = self._run()

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``; ``position`` is a number among all tokens, 0 before it is over."""
        return RestorationState(
            position=self._reached.next_token,
            is_over=self._is_over,
            is_loading=not self._is_over,
            is_waiting=self._patience.is_waiting,
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; asks for no tokens before it is over."""
        del token_budget
        self._limit.begin_look(self._reader, was_waiting=self._patience.is_waiting)
        room = piece_tokens * self._layout.layer_count
        work: int | None = 1
        while work is not None and work > 0 and room > 0:
            work = next(self._work, None)
            room -= work or 0
        self._limit.end_look()
        if work == 0:
            self._patience.begin_wait()
        else:
            self._patience.end_wait()
        if work is None and not self._is_over:
            self._loader.finish()
            self._reached = self._window.reached(self._loaded_chunks)
            self._ended_s = self._clock()
            self._is_over = True
        return 0

    def begin_step(self, token_count: int) -> int:
        """As ``Restoration``: perhaps a token inside a chunk, where the store's sequence ends."""
        del token_count
        return self._reached.first_unstored

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``, no longer than the store may still be waited for."""
        self._wait(min(timeout_s, self._patience.remaining_s(), self._limit.wait_s_max))

    def close(self) -> RestoreReport:
        """As ``Restoration``."""
        self._reader.close()
        self._limit.share.end()
        device_bytes, dram_bytes = self._reader.read_bytes()
        return RestoreReport(
            restored_tokens=self._reached.restored_tokens,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            waited_s=self._patience.waited_s,
            decode_s=self._reader.decode_s(),
            duration_s=(self._ended_s if self._is_over else self._clock()) - self._started_s,
            first_unstored=self._reached.first_unstored,
        )

    def _run(self) -> Iterator[int]:
        """Yields the tokens that a layer took; 0 when there is nothing to do."""
        reader, loaded_tokens = self._reader, 0
        while True:
            self._wait = reader.wait_news
            span = reader.first()
            if span is None:
                if reader.is_over or not self._may_wait(self._limit.opening(loaded_tokens)):
                    return
                yield 0
                continue
            stop = loaded_tokens + self._window.token_count(span)
            for layer in range(self._layout.layer_count):
                while span.arrived_chunks(layer) < span.chunk_count:
                    if not self._may_come(span, layer):
                        return
                    verdict = self._limit.judge(span, loaded_tokens, stop)
                    if not (span.is_finished or self._may_wait(verdict)):
                        return
                    self._wait = partial(self._wait_for, span, layer)
                    yield 0
                yield self._load(span, layer)
            self._loaded_chunks += span.chunk_count
            self._limit.gain(loaded_tokens, stop)
            loaded_tokens = stop
            self._settle_once(loaded_tokens)
            reader.give_back(span)

    def _settle_once(self, loaded_tokens: int) -> None:
        """Once all up to the last cut has come, only what is missing after it is computed."""
        if self._settle is not None and self._window.reached(self._loaded_chunks).may_follow:
            settle, self._settle = self._settle, None
            settle(loaded_tokens)

    def _may_come(self, span: Span, layer: int) -> bool:
        """Whether the rest of a layer is there or on its way."""
        arrived = span.arrived_chunks(layer)
        # The last one may have come since the look before.
        if arrived == span.chunk_count:
            return True
        return span.is_current and not span.is_lost(arrived, layer)

    def _may_wait(self, verdict: Verdict) -> bool:
        return verdict is Verdict.WAIT and self._patience.remaining_s() > 0

    def _wait_for(self, span: Span, layer: int, timeout_s: float) -> None:
        arrived = span.arrived_chunks(layer)
        if span.reads.read_of(layer) is None:
            self._reader.wait_news(timeout_s)
        elif arrived < span.chunk_count:
            span.wait(arrived, layer, timeout_s=timeout_s)

    def _load(self, span: Span, layer: int) -> int:
        started_s = self._clock()
        token_count = self._window.take(span, layer, range(span.chunk_count))
        self._limit.end_take(layer, self._clock() - started_s, layer_tokens=token_count)
        return token_count
