"""A restoration by layers under a virtual clock: spans, a store of any pace, a stake. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field

from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.ranges import TokenRange
from engine_adapters.restore.read_pace import ReadPace
from engine_adapters.restore.stake import Stake, Verdict, first_span_chunks

SPANS_IN_FLIGHT = 2
LOOKS = 4000
"""Looks at the board while everything could be computed once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStore:
    """``tokens_per_s(now_s)`` is how fast tokens come, over all their layers; 0 is silence.

    Nothing is known of what is stored before ``opened_s``. Every loaded token takes
    ``take_token_s`` of the compute side.
    """

    tokens_per_s: Callable[[float], float]
    opened_s: float = 0.0
    take_token_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class SpanOutcome:
    """How long it took until all tokens had their states, and where these came from."""

    duration_s: float = 0.0
    computed: list[TokenRange] = field(default_factory=list)
    loaded: list[TokenRange] = field(default_factory=list)


@dataclass(slots=True)
class _Span:
    first: int
    stop: int
    arrived: float = 0.0

    @property
    def missing(self) -> float:
        return self.stop - self.first - self.arrived


class VirtualSpans:
    """One history, as ``SpanRestoration`` restores it: layer after layer of span after span."""

    def __init__(
        self,
        store: VirtualStore,
        compute: ComputeCost,
        *,
        chunk_count: int,
        chunk_tokens: int = 64,
        span_chunks: int = 16,
        layer_count: int = 40,
        step_tokens: int = 512,
        least_wait_s: float = 0.0,
    ) -> None:
        self._store = store
        self._tokens = chunk_count * chunk_tokens
        self._chunk_tokens = chunk_tokens
        self._span_chunks = span_chunks
        self._next_chunks = first_span_chunks(chunk_count, span_chunks=span_chunks)
        self._layers = layer_count
        self._step_tokens = step_tokens
        self._stake = Stake(
            compute, self._tokens, step_tokens=step_tokens, least_wait_s=least_wait_s
        )
        self._pace = ReadPace(
            memory_bytes=self._tokens / 64, evidence_s=self._stake.evidence_s, now_s=0.0
        )
        self._look_s = self._stake.compute_s(0, self._tokens) / LOOKS
        self._now_s = 0.0
        self._spans: list[_Span] = []
        self._asked_to = 0
        self._arrived = 0.0
        self._position = 0
        self._outcome = SpanOutcome()

    def run(self) -> SpanOutcome:
        """Until every token has its states."""
        while self._now_s < self._store.opened_s and self._waits_for_opening():
            self._pass(self._look_s)
            self._stake.spend(self._look_s)
        if self._now_s >= self._store.opened_s:
            self._ask()
            while self._spans:
                self._take(self._spans[0])
        self._compute(self._tokens)
        self._outcome.duration_s = self._now_s
        return self._outcome

    def _waits_for_opening(self) -> bool:
        return self._stake.opening(0, self._chunk_tokens, load_s=None) is Verdict.WAIT

    def _take(self, span: _Span) -> None:
        layer = 0
        while layer < self._layers and self._position < span.stop:
            verdict = Verdict.WAIT
            if span.missing > 1e-6:
                self._pace.observe(self._now_s, int(self._arrived))
                load_s = self._pace.remaining_s(span.missing)
                verdict = self._stake.verdict(self._position, span.stop, load_s=load_s)
            if verdict is Verdict.DROP:
                break
            if verdict is Verdict.COMPUTE:
                while span.missing > 1e-6 and self._position < span.stop:
                    self._step(span.stop)
                layer = 0
            elif span.arrived >= (span.stop - span.first) * (layer + 1) / self._layers - 1e-6:
                self._work((span.stop - self._position) * self._store.take_token_s / self._layers)
                layer += 1
            else:
                self._pass(self._look_s)
                self._stake.spend(self._look_s)
        if layer == self._layers:
            self._stake.gain(self._position, span.stop)
            self._outcome.loaded.append(TokenRange(self._position, span.stop))
            self._position = span.stop
        self._spans.remove(span)
        self._ask()
        if self._position < span.stop:
            # Whole steps, as far as there is anything to compute.
            self._compute(max(span.stop, min(self._tokens, self._position + self._step_tokens)))

    def _compute(self, stop: int) -> None:
        while self._position < stop:
            self._step(stop)

    def _step(self, stop: int) -> None:
        first, self._position = self._position, min(stop, self._position + self._step_tokens)
        self._pass(self._stake.compute_s(first, self._position))
        self._outcome.computed.append(TokenRange(first, self._position))

    def _work(self, duration_s: float) -> None:
        self._pass(duration_s)
        self._stake.spend(duration_s)

    def _ask(self) -> None:
        while len(self._spans) < SPANS_IN_FLIGHT and self._asked_to < self._tokens:
            stop = min(self._tokens, self._asked_to + self._next_chunks * self._chunk_tokens)
            self._next_chunks = min(self._span_chunks, 2 * self._next_chunks)
            self._spans.append(_Span(self._asked_to, stop))
            self._asked_to = stop

    def _pass(self, duration_s: float) -> None:
        """Time goes by, in looks, and the spans in flight come one after the other."""
        end_s = self._now_s + duration_s
        while end_s - self._now_s > 1e-12:
            look_s = min(self._look_s, end_s - self._now_s)
            came = look_s * self._store.tokens_per_s(self._now_s)
            for span in self._spans:
                part = min(came, span.missing)
                span.arrived += part
                self._arrived += part
                came -= part
            self._now_s += look_s
