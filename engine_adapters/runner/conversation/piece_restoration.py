"""A conversation whose window is loaded from stored pieces, layer after layer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from engine_adapters.conversation.conversations import StoredStates
from engine_adapters.conversation.usable_states import UsableStates, usable_states
from engine_adapters.reading.piece import Piece
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import StoredPieces
from engine_adapters.restore import Verdict
from engine_adapters.runner.conversation.load_runs import LoadRun, chunks_of, load_runs
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.patience import Patience
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.save.snapshot import token_axis
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_contract.keys import Cut


class PieceFinder:
    """Asks the store which pieces to load, on the thread of a reader."""

    def __init__(self, ask: Callable[[], StoredStates], *, chunk_tokens: int) -> None:
        self._ask = ask
        self._chunk_tokens = chunk_tokens
        self.found: StoredStates | None = None

    def __call__(self) -> StoredPieces:
        """The chunks that the window lies in, each once."""
        found = self.found = self._ask()
        chunks = chunks_of(found.usable.pieces)
        first = {piece.chunk: piece.first_position for piece in reversed(found.usable.pieces)}
        pieces = tuple(
            # All tokens that a chunk has are read; those of the window are loaded.
            Piece(
                found.keys[chunk],
                first[chunk],
                min(self._chunk_tokens, found.stop - chunk * self._chunk_tokens),
            )
            for chunk in chunks
        )
        return StoredPieces(pieces=pieces, is_stored=(True,) * len(pieces), lease=found.lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What ``cuts`` have left of a history: position p goes to slot ``first_slot + p``."""

    cuts: tuple[Cut, ...]
    cache: KvCache
    first_slot: int


class PieceRestoration:
    """Makes keys and values of a window that cuts have left, from the pieces that are stored.

    Keys are rotated at the positions that their tokens have now. What is restored is the longest
    run of chunks that came whole, as far as computing can go on from there: where a chunk is lost
    before the last cut, nothing is, and the engine computes everything again, cuts included.
    Positions of ``state`` are numbers among all tokens, those of ``limit`` are in the window.

    What ``limit`` says costs too much to wait for counts as lost. It takes each span that came as
    gained, also before the last cut: a store that falls silent there has cost what these spans took
    as well. The engine's thread only.
    """

    def __init__(
        self,
        reader: SpanReader,
        finder: PieceFinder,
        loader: LayerLoader,
        state_format: StateFormat,
        window: Window,
        limit: LoadingLimit,
        options: RestoreOptions,
    ) -> None:
        self._reader = reader
        self._finder = finder
        self._loader = loader
        self._format = state_format
        self._window = window
        self._limit = limit
        self._patience = Patience(options.timeout_s, options.clock)
        self._clock = options.clock
        self._started_s = self._ended_s = self._clock()
        self._wait: Callable[[float], object] = reader.wait_news
        self._loaded_chunks = 0
        self._usable = UsableStates()
        self._is_over = False
        self._work = self._run()

    @property
    def usable(self) -> UsableStates:
        """What of the states is in the cache, once it is over."""
        return self._usable

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``; ``position`` is a number among all tokens, 0 before it is over."""
        return RestorationState(
            position=self._usable.next_token,
            is_over=self._is_over,
            is_loading=not self._is_over,
            is_waiting=self._patience.is_waiting,
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; asks for no tokens before it is over."""
        del token_budget
        self._limit.begin_look(self._reader, was_waiting=self._patience.is_waiting)
        room = piece_tokens * self._format.layout.layer_count
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
            self._usable = self._usable_now()
            self._ended_s = self._clock()
            self._is_over = True
        return 0

    def first_unstored(self) -> int:
        """As ``Restoration``: may lie inside a chunk, where the store's sequence ends."""
        return self._usable.next_token

    def begin_step(self, token_count: int) -> None:
        """As ``Restoration``."""

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``, no longer than the store may still be waited for."""
        self._wait(min(timeout_s, self._patience.remaining_s(), self._limit.wait_s_max))

    def report(self) -> RestoreReport:
        """As ``Restoration``."""
        device_bytes, dram_bytes = self._reader.read_bytes()
        return RestoreReport(
            restored_tokens=self._usable.token_count,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            waited_s=self._patience.waited_s,
            decode_s=self._reader.decode_s(),
            duration_s=(self._ended_s if self._is_over else self._clock()) - self._started_s,
        )

    def close(self) -> None:
        """As ``Restoration``."""
        self._reader.close()

    def _usable_now(self) -> UsableStates:
        found = self._finder.found
        if found is None:
            return UsableStates()
        loaded = set(chunks_of(found.usable.pieces)[: self._loaded_chunks])
        usable = usable_states(
            self._window.cuts,
            [chunk in loaded for chunk in range(len(found.keys))],
            stop=found.stop,
            chunk_tokens=self._format.layout.chunk_tokens,
        )
        # Before another cut they would have other positions than they were loaded at.
        return usable if usable.cut_count == found.usable.cut_count else UsableStates()

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
            for layer in range(self._format.layout.layer_count):
                while span.arrived_chunks(layer) < span.chunk_count:
                    if not self._may_come(span, layer):
                        return
                    verdict = self._limit.judge(span, loaded_tokens)
                    if not (span.is_finished or self._may_wait(verdict)):
                        return
                    self._wait = partial(self._wait_for, span, layer)
                    yield 0
                yield self._load(span, layer)
            self._loaded_chunks += span.chunk_count
            self._limit.gain(loaded_tokens, span.stop_token)
            loaded_tokens = span.stop_token
            reader.give_back(span)

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
        found = self._finder.found
        assert found is not None
        chunks = range(span.first_chunk, span.first_chunk + span.chunk_count)
        token_count = 0
        for run in load_runs(
            found.usable.pieces, chunks, chunk_tokens=self._format.layout.chunk_tokens
        ):
            self._loader.load(
                layer,
                self._rows(span, layer, run),
                cache=self._window.cache,
                first_slot=self._window.first_slot + run.first_position,
                first_position=run.first_position,
            )
            token_count += run.token_count
        return token_count

    def _rows(self, span: Span, layer: int, run: LoadRun) -> Tensor:
        """The rows of a run: [chunks, *shape of a slice with so many tokens]."""
        first_chunk = run.first_chunk - span.first_chunk
        states = span.states(layer, run.chunk_count, first_chunk=first_chunk)
        axis = 1 + token_axis(states.shape[1:])
        return states.narrow(axis, run.first_row, run.row_count)
