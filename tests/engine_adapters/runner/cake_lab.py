"""Restorations by both ends over a store whose chunks arrive one by one, without any clock."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch

from engine_adapters.reading.decoded_slices import DecodedSlices
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import THREAD_NAME as READER
from engine_adapters.restore import ComputeCost, LayerSchedule, LoadCost
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, StateSink
from engine_adapters.runner.restore.cake_restoration import CakeRestoration
from engine_adapters.runner.restore.pointer_sample import PointerSample
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import RAW, Read, Region
from kvstored_client.testing import MemoryClient, StoredChunk
from tests.engine_adapters.runner.arrivals import Arrivals
from tests.engine_adapters.runner.memory import Clock, check_released, make_store
from tests.support.waiting import wait_until

CHUNK_TOKENS = 8
CHUNKS = 14
EXACT = 1e-5
EXACT_IN_ANY_STEPS = 5 * EXACT
"""Of values of up to 5: two plain prefills in steps of other sizes differ by more than 1e-5."""
NEW_TOKENS = 4
STEPS_MAX = 2000
ROOM_BYTES = 8 << 20
PROMPT = [(31 * n * n + 7 * n) % 97 for n in range(CHUNKS * CHUNK_TOKENS + 1)]


class LabClient(MemoryClient):
    """A client of a store of its own, whose reads bring something only when the test says so.

    ``clock`` is the engine's. ``opened`` are its reads, ``refused_bytes`` the sizes for which
    a reader found no room.
    """

    def __init__(self, chunks: dict[bytes, StoredChunk], *, room_bytes: int = ROOM_BYTES) -> None:
        super().__init__(make_store(chunks), room_bytes=room_bytes)
        self.arrivals = Arrivals(self.store)
        self.clock = Clock()
        self.opened: list[Read] = []
        self.refused_bytes: set[int] = set()

    def allocate(self, byte_count: int, *, connects: bool = True) -> Region | None:
        region = super().allocate(byte_count, connects=connects)
        if region is None and threading.current_thread().name == READER:
            self.refused_bytes.add(byte_count)
        return region

    def read(self, *arguments: Any, **options: Any) -> Read:
        read = super().read(*arguments, **options)
        self.opened.append(read)
        return read


class TickingSink:
    """Lets every step take a second, and passes all on."""

    def __init__(self, clock: Clock, inner: StateSink) -> None:
        self._clock = clock
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def end_step(self) -> None:
        self._clock.advance(1.0)
        self._inner.end_step()


def has_asked(engine: Engine, client: LabClient, *, answers_at_s: float) -> bool:
    """Whether what was planned is being read, so that no step depends on when a thread runs.

    Before there is a plan: whether it is known what is stored, from ``answers_at_s`` on.
    """
    (request,) = engine._running.values()
    restoration = request.restoration
    if not isinstance(restoration, CakeRestoration) or restoration.state.is_over:
        return True
    reader = restoration._reader
    if reader.is_ended:
        return True
    if restoration.plan is None:
        return client.clock.now_s <= answers_at_s or reader.stored is not None
    # A read is a span of the reader's a moment after it was begun.
    known = [
        read for span in (*reader.spans, *reader._held.given_back) for read in span.reads.started
    ]
    if any(is_open(read) and read not in known for read in list(client.opened)):
        return False
    # Who waits for room waits for other threads.
    has_no_room = restoration._format.span_bytes(1) in client.refused_bytes
    return bool(client.opened) or has_no_room or not restoration.plan.load_order


def is_open(read: Read) -> bool:
    """Whether it was not closed, and its session lives."""
    return read._progress.board.offset is not None


def is_decoded(engine: Engine) -> bool:
    """Whether all that has arrived is decoded, likewise."""
    restorations = [request.restoration for request in engine._running.values()]
    return all(
        has_decoded(span)
        for restoration in restorations
        if isinstance(restoration, CakeRestoration)
        for span in restoration._reader.spans
        if isinstance(span._slices, DecodedSlices)
    )


def has_decoded(span: Span) -> bool:
    reads = span.reads
    return all(
        span._slices.state(chunk, section.first_layer + layer) or not read.state(chunk, layer)
        for section, read in zip(reads.sections, reads.started, strict=False)
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
    chunks: dict[bytes, StoredChunk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.format = StateFormat.of_model(
            self.model, "cake", schedule=self.schedule, chunk_tokens=self.chunk_tokens
        ).encoded(self.codec)
        client = MemoryClient(make_store(self.chunks))
        saver = StateSaver(client, self.format)
        engine = self.engine(saver=saver)
        self.run(engine, PROMPT)
        saver.close()
        client.close()
        self.computed = engine._cache
        """What plain prefill makes of ``PROMPT``."""
        self.keys = client.prefix_keys(self.format.layout, PROMPT)
        self.plain = cache(lambda count: self.run(self.engine(), PROMPT[:count]))

    def engine(
        self,
        *,
        restorer: Restorer | None = None,
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
        client: LabClient | None = None,
        arrivals: tuple[int, ...] = (0,),
        answers_at_s: float = -1.0,
    ) -> Completion:
        """Before each step so many chunks arrive, in turns.

        Until the client's clock is past ``answers_at_s`` no step waits for what is stored.
        """
        engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        for step in range(STEPS_MAX):
            if client is not None:
                client.arrivals.deliver(arrivals[step % len(arrivals)])
                wait_until(partial(is_decoded, engine))
                client.clock.advance(0.01)
            if completions := engine.step():
                return completions[0]
            if client is not None:
                wait_until(partial(has_asked, engine, client, answers_at_s=answers_at_s))
        raise AssertionError("the request never ended")

    def states_of(self, slices: tuple[bytes, ...]) -> torch.Tensor:
        """All values of a stored chunk."""
        codec = self.format.codec
        if codec is None:
            return torch.frombuffer(bytearray(b"".join(slices)), dtype=torch.float32)
        decoded = [torch.empty(self.format.slice_shape(n)) for n in range(len(slices))]
        for layer, (payload, out) in enumerate(zip(slices, decoded, strict=True)):
            codec.decode(layer, payload, out)
        return torch.cat([each.flatten() for each in decoded])

    def stored(self, flags: tuple[bool, ...]) -> dict[bytes, StoredChunk]:
        kept = [key for key, flag in zip(self.keys, flags, strict=False) if flag]
        return {key: self.chunks[key] for key in kept}


@dataclass
class Restored:
    completion: Completion
    samples: list[PointerSample]
    engine: Engine


def restore(
    lab: Lab,
    client: LabClient,
    *,
    prompt_tokens: int = len(PROMPT),
    arrivals: tuple[int, ...] = (1,),
    token_budget: int = 16,
    span_chunks: int = 100,
    chunk_s: float = 1.0,
    saves: bool = False,
    answers_at_s: float = -1.0,
) -> Restored:
    """Restores and checks that every token is the one that a plain prefill leads to.

    A step of 16 tokens takes as long as two chunks unless ``chunk_s`` says otherwise.
    """
    samples: list[PointerSample] = []
    restorer = Restorer(
        client,
        lab.format,
        lab.model,
        RestoreOptions(
            way=Way.BOTH_ENDS,
            compute=ComputeCost(step_s=0.2, token_s=0.05, attention_s=0.0),
            load=LoadCost(chunk_s=chunk_s),
            step_tokens=token_budget,
            span_bytes=lab.format.span_bytes(span_chunks),
            opening_s_max=600.0,
            clock=client.clock,
            observer=samples.append,
        ),
    )
    saver = StateSaver(client, lab.format) if saves else None
    sink = TickingSink(client.clock, saver or NullSink())
    engine = lab.engine(
        restorer=restorer, saver=sink, token_budget=token_budget, clock=client.clock
    )
    prompt = PROMPT[:prompt_tokens]
    completion = lab.run(
        engine, prompt, client=client, arrivals=arrivals, answers_at_s=answers_at_s
    )
    restorer.close()
    if saver is not None:
        saver.close()
    check_released(client.store)
    check_equal(lab, completion, prompt_tokens)
    return Restored(completion, samples, engine)


def check_equal(lab: Lab, completion: Completion, prompt_tokens: int) -> None:
    """The tokens are those of a plain prefill, and each was either restored or computed."""
    assert completion.token_ids == lab.plain(prompt_tokens).token_ids
    forwarded = prompt_tokens + NEW_TOKENS - 1
    assert completion.computed_tokens + completion.restore.restored_tokens == forwarded


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
