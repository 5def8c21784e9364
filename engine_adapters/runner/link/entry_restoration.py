"""Loads the stored chunks of entries to their places in a prompt, layer after layer."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from engine_adapters.link.open_rows import OpenRows
from engine_adapters.link.rows import RowGroup, distinct
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import Verdict
from engine_adapters.restore.ranges import true_ranges
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.link.stored_entries import EntryFinder, Place
from engine_adapters.runner.restore.awaited_chunks import Patience
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import StateKind


class EntryRestoration:
    """As ``Restoration``; no chunk depends on another one.

    Keys are rotated at the positions that tokens have in the prompt, and hidden states are
    projected there. A chunk that is lost, or too late by what ``limit`` says, is left out, and the
    others go on.

    While nothing has come, what there is to compute before the first entry that is still on its way
    is computed: no token sees one behind it, and nothing is loaded to places before that entry any
    more. The engine's thread only.
    """

    def __init__(
        self,
        reader: SpanReader,
        finder: EntryFinder,
        loader: LayerLoader,
        state_format: StateFormat,
        target: Target,
        limit: LoadingLimit,
        options: RestoreOptions,
        *,
        early_tokens: int | None,
    ) -> None:
        """At least ``early_tokens`` are computed while entries come; None: nothing before all."""
        self._reader = reader
        self._finder = finder
        self._loader = loader
        self._format = state_format
        self._target = target
        self._limit = limit
        self._patience = Patience(options.timeout_s, options.clock)
        self._clock = options.clock
        self._started_s = self._ended_s = self._clock()
        self._wait: Callable[[float], object] = reader.wait_news
        self._is_over = False
        self._settled_pieces = 0
        self.rows = OpenRows(
            finder.plan, chunk_tokens=state_format.layout.chunk_tokens, early_tokens=early_tokens
        )
        """What there is to compute by what is in the cache, at places that nothing is loaded to."""
        self._work = self._run()

    @property
    def groups(self) -> tuple[RowGroup, ...]:
        """What can be computed: all that there is to compute, once it is over."""
        return self.rows.groups

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``; ``position`` stays 0."""
        return RestorationState(
            position=0,
            is_over=self._is_over,
            is_loading=not self._is_over,
            is_waiting=self._patience.is_waiting,
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; asks for what may be computed while the store is waited for."""
        self._limit.begin_look(self._reader, was_waiting=self._patience.is_waiting)
        room = piece_tokens * self._format.layout.layer_count
        work: int | None = 1
        while work is not None and work > 0 and room > 0:
            work = next(self._work, None)
            room -= work or 0
        self._limit.end_look()
        if work is None:
            self._end_loading()
        elif work == 0:
            self._open_early()
        if work == 0 and not self.rows.ready_tokens:
            self._patience.begin_wait()
        else:
            self._patience.end_wait()
        return 0 if self._is_over else min(self.rows.ready_tokens, token_budget)

    def begin_step(self, token_count: int) -> int:
        """As ``Restoration``: of what it has asked for. Nothing of a linked prompt is saved."""
        self.rows.take(token_count)
        return 0

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``, no longer than the store may still be waited for."""
        self._wait(min(timeout_s, self._patience.remaining_s(), self._limit.wait_s_max))

    def report_of(
        self,
        groups: tuple[RowGroup, ...],
        *,
        recomputed_layer_tokens: int = 0,
        filled: frozenset[int] = frozenset(),
    ) -> RestoreReport:
        """The report where these groups are computed, and the positions ``filled`` were."""
        device_bytes, dram_bytes = self._reader.read_bytes()
        return RestoreReport(
            restored_tokens=self._finder.plan.token_count - len(distinct(groups) | filled),
            recomputed_layer_tokens=recomputed_layer_tokens,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            waited_s=self._patience.waited_s,
            decode_s=self._reader.decode_s(),
            duration_s=(self._ended_s if self._is_over else self._clock()) - self._started_s,
        )

    def close(self) -> RestoreReport:
        """As ``Restoration``; ``restored_tokens`` are those that keep their stored states."""
        self._reader.close()
        self._limit.share.end()
        return self.report_of(self.rows.all_groups)

    def _end_loading(self) -> None:
        if not self._is_over:
            self._loader.finish()
            self._limit.share.end()
            self._ended_s = self._clock()
            self.rows.open_all()
            self._is_over = True

    def _open_early(self) -> None:
        """Opens what is before the first entry of which a chunk may still be loaded.

        Where no piece is left it is nearly over: then the rest is computed in one step.
        """
        entry = None
        if self._reader.stored is not None:
            # Pieces are in the order of their first places.
            places = self._finder.places[self._settled_pieces :]
            if not places:
                return
            entry = places[0][0].entry
        if self.rows.open_early(entry):
            self._loader.finish()

    def _run(self) -> Iterator[int]:
        """Yields the tokens that a layer took; 0 when there is nothing to do."""
        reader, position = self._reader, 0
        while True:
            self._wait = reader.wait_news
            span = reader.first()
            if span is None:
                if reader.is_over or not self._may_wait(self._limit.opening(position)):
                    return
                yield 0
                continue
            stop = position + sum(piece.token_count for piece in span.pieces)
            for layer in range(self._format.layout.layer_count):
                while span.is_current and not span.is_layer_settled(layer):
                    verdict = self._limit.judge(span, position, stop)
                    if not (span.is_finished or self._may_wait(verdict)):
                        return
                    self._wait = partial(self._wait_for, span, layer)
                    yield 0
                if not span.is_current:
                    return
                yield self._load(span, layer)
            self._settle(span)
            self._limit.gain(position, stop)
            position = stop
            reader.give_back(span)

    def _may_wait(self, verdict: Verdict) -> bool:
        return verdict is Verdict.WAIT and self._patience.remaining_s() > 0

    def _wait_for(self, span: Span, layer: int, timeout_s: float) -> None:
        if span.reads.read_of(layer) is None:
            self._reader.wait_news(timeout_s)
        else:
            span.wait_layer(layer, timeout_s)

    def _load(self, span: Span, layer: int) -> int:
        """Takes a layer of what is not lost of a span; how many tokens."""
        token_count = 0
        is_kept = [not span.is_lost(chunk) for chunk in range(span.chunk_count)]
        is_whole = [
            kept and not self._places(span, chunk)[0].sink_rows
            for chunk, kept in enumerate(is_kept)
        ]
        for chunks in true_ranges(is_whole):
            self._loader.load_pieces(span, layer, chunks, self._target)
            token_count += sum(span.pieces[chunk].token_count for chunk in chunks)
        for chunk, kept in enumerate(is_kept):
            if kept:
                # What is there as a whole has its first place already.
                places = self._places(span, chunk)[is_whole[chunk] :]
                token_count += self._load_at(places, span, layer, chunk)
        return token_count

    def _places(self, span: Span, chunk: int) -> tuple[Place, ...]:
        return self._finder.places[span.first_chunk + chunk]

    def _load_at(self, places: Sequence[Place], span: Span, layer: int, chunk: int) -> int:
        """Takes a layer of a chunk to these of its places, without the rows of a sink."""
        is_hidden = self._format.layout.layers[layer].kind is StateKind.HIDDEN
        for place in places:
            states = span.states(layer, 1, first_chunk=chunk)
            self._loader.load_of(
                span,
                layer,
                states[:, place.sink_rows :] if is_hidden else states[:, :, place.sink_rows :],
                cache=self._target.cache,
                first_slot=self._target.first_slot + place.first_position,
                first_position=place.first_position,
            )
        return len(places) * span.pieces[chunk].token_count

    def _settle(self, span: Span) -> None:
        """All layers were taken of what is still not lost."""
        self._settled_pieces = span.first_chunk + span.chunk_count
        for chunk in range(span.chunk_count):
            if not span.is_lost(chunk):
                for place in self._places(span, chunk):
                    self.rows.add(place.entry, place.chunk)
