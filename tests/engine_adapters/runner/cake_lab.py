"""Restorations by both ends over a store whose chunks arrive one by one, without any clock."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch

from engine_adapters.restore import ComputeCost, LayerSchedule, LoadCost
from engine_adapters.runner.cake_restoration import CakeRestoration, PointerSample
from engine_adapters.runner.cake_restorer import CakeRestorer
from engine_adapters.runner.decoded_span import DecodedSpan
from engine_adapters.runner.engine import Engine
from engine_adapters.runner.model import Model
from engine_adapters.runner.request import Completion
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.span import Span
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import NullSink, StateSink
from kvstored_client import RAW
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore
from tests.engine_adapters.runner.streamed_client import StreamedClient, StreamedRead
from tests.support.waiting import wait_until

CHUNK_TOKENS = 8
CHUNKS = 14
EXACT = 1e-5
NEW_TOKENS = 4
STEPS_MAX = 2000
PROMPT = [(31 * n * n + 7 * n) % 97 for n in range(CHUNKS * CHUNK_TOKENS + 1)]


class TickingSink:
    """Lets every step take a second, and passes all on."""

    def __init__(self, client: FakeClient, inner: StateSink) -> None:
        self._client = client
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def end_step(self) -> None:
        self._client.now_s += 1.0
        self._inner.end_step()


def has_asked(engine: Engine, client: StreamedClient, *, is_answered: bool) -> bool:
    """Whether what was planned is being read, so that no step depends on when a thread runs.

    Before there is a plan: whether it is known what is stored, where that ``is_answered``.
    """
    (request,) = engine._running.values()
    restoration = request.restoration
    if not isinstance(restoration, CakeRestoration) or restoration.is_over:
        return True
    reader = restoration._reader
    if reader.is_ended:
        return True
    if restoration.plan is None:
        return not is_answered or reader.is_stored is not None
    # A read is a span of the reader's a moment after it was begun.
    spans = (*reader.spans, *reader._given_back)
    if any(not read.is_closed and not is_of(read, spans) for read in client.reads):
        return False
    # Who waits for room waits for other threads.
    has_no_room = restoration._format.span_bytes(1) in client.refused_bytes
    return bool(client.reads) or has_no_room or not restoration.plan.load_order


def is_of(read: StreamedRead, spans: Iterable[Span]) -> bool:
    return any(read in span._reads for span in spans)


def is_decoded(engine: Engine) -> bool:
    """Whether all that has arrived is decoded, likewise."""
    restorations = [request.restoration for request in engine._running.values()]
    return all(
        has_decoded(span)
        for restoration in restorations
        if isinstance(restoration, CakeRestoration)
        for span in restoration._reader.spans
        if isinstance(span, DecodedSpan)
    )


def has_decoded(span: DecodedSpan) -> bool:
    return all(
        span._slices[section.first_layer + layer][chunk] or not read.state(chunk, layer)
        for section, read in zip(span._sections, span._reads, strict=False)
        for chunk in range(span.chunk_count)
        for layer in range(section.layer_count)
    )


@dataclass
class Lab:
    """States of ``PROMPT`` in one layout, and restorations of its beginnings."""

    model: Model
    schedule: LayerSchedule
    codec: str = RAW
    chunk_tokens: int = CHUNK_TOKENS
    store: FakeStore = field(default_factory=FakeStore)

    def __post_init__(self) -> None:
        self.format = StateFormat.of_model(
            self.model, "cake", schedule=self.schedule, chunk_tokens=self.chunk_tokens
        ).encoded(self.codec)
        client = FakeClient(self.store)
        saver = StateSaver(client, self.format)
        engine = self.engine(saver=saver)
        self.run(engine, PROMPT)
        saver.close()
        self.computed = engine._cache
        """What plain prefill makes of ``PROMPT``."""
        self.keys = client.prefix_keys(self.format.layout, PROMPT)
        self.plain = cache(lambda count: self.run(self.engine(), PROMPT[:count]))

    def engine(
        self,
        *,
        restorer: CakeRestorer | None = None,
        saver: StateSink | None = None,
        token_budget: int = 16,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> Engine:
        return Engine(
            self.model,
            cache_tokens=256,
            token_budget=token_budget,
            requests_max=1,
            sink=saver,
            restorer=restorer,
            clock=clock,
        )

    def run(
        self,
        engine: Engine,
        prompt: list[int],
        *,
        client: StreamedClient | None = None,
        arrivals: tuple[int, ...] = (0,),
        is_answered: bool = True,
    ) -> Completion:
        """Before each step so many chunks arrive, in turns.

        Unless ``is_answered`` no step waits until it is known what is stored.
        """
        engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        for step in range(STEPS_MAX):
            if client is not None:
                client.deliver(arrivals[step % len(arrivals)])
                wait_until(partial(is_decoded, engine))
                client.now_s += 0.01
            if completions := engine.step():
                return completions[0]
            if client is not None:
                wait_until(partial(has_asked, engine, client, is_answered=is_answered))
        raise AssertionError("the request never ended")

    def states_of(self, slices: list[bytes]) -> torch.Tensor:
        """All values of a stored chunk."""
        codec = self.format.codec
        if codec is None:
            return torch.frombuffer(bytearray(b"".join(slices)), dtype=torch.float32)
        decoded = [torch.empty(self.format.slice_shape(n)) for n in range(len(slices))]
        for layer, (payload, out) in enumerate(zip(slices, decoded, strict=True)):
            codec.decode(layer, payload, out)
        return torch.cat([each.flatten() for each in decoded])

    def stored(self, flags: tuple[bool, ...]) -> FakeStore:
        kept = [key for key, flag in zip(self.keys, flags, strict=False) if flag]
        return FakeStore(chunks={key: self.store.chunks[key] for key in kept})


@dataclass
class Restored:
    completion: Completion
    samples: list[PointerSample]
    engine: Engine


def restore(
    lab: Lab,
    client: StreamedClient,
    *,
    prompt_tokens: int = len(PROMPT),
    arrivals: tuple[int, ...] = (1,),
    token_budget: int = 16,
    span_chunks: int = 100,
    chunk_s: float = 1.0,
    saves: bool = False,
    is_answered: bool = True,
) -> Restored:
    """A step of 16 tokens takes as long as two chunks unless ``chunk_s`` says otherwise."""
    samples: list[PointerSample] = []
    restorer = CakeRestorer(
        client,
        lab.format,
        lab.model,
        compute=ComputeCost(step_s=0.2, token_s=0.05, attention_s=0.0),
        load=LoadCost(chunk_s=chunk_s),
        token_budget=token_budget,
        span_bytes=lab.format.span_bytes(span_chunks),
        opening_s_max=600.0,
        clock=lambda: client.now_s,
        observer=samples.append,
    )
    saver = StateSaver(client, lab.format) if saves else None
    sink = TickingSink(client, saver or NullSink())
    engine = lab.engine(
        restorer=restorer, saver=sink, token_budget=token_budget, clock=lambda: client.now_s
    )
    prompt = PROMPT[:prompt_tokens]
    completion = lab.run(engine, prompt, client=client, arrivals=arrivals, is_answered=is_answered)
    restorer.close()
    if saver is not None:
        saver.close()
    assert client.regions_in_use == 0
    assert client.reads_in_flight == 0
    assert client.leases_taken == len(client.leases_released)
    return Restored(completion, samples, engine)


def check_states(
    lab: Lab,
    restored: Restored,
    prompt_tokens: int = len(PROMPT),
    *,
    difference_max: float = EXACT,
) -> None:
    """The cache holds what plain prefill of the prompt makes."""
    for ours, computed in (
        (restored.engine._cache.keys, lab.computed.keys),
        (restored.engine._cache.values, lab.computed.values),
    ):
        difference = (ours[:, :prompt_tokens] - computed[:, :prompt_tokens]).abs().max()
        assert difference < difference_max
        assert torch.count_nonzero(computed[:, :prompt_tokens])


def check_equal(lab: Lab, restored: Restored, prompt_tokens: int = len(PROMPT)) -> None:
    plain = lab.plain(prompt_tokens)
    assert restored.completion.token_ids == plain.token_ids
    forwarded = prompt_tokens + NEW_TOKENS - 1
    report = restored.completion.restore
    assert restored.completion.computed_tokens + report.restored_tokens == forwarded
