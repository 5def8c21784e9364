"""Wherever a history is split by tokens, restored keys and values are those computed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.restore.token_partition.parts import StoredPart
from benchmarks.restore.token_partition.restorer import TokenPartitionRestorer
from engine_adapters.restore import LayerSchedule, Source, TokenRange
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import StateKind
from kvstored_client.testing import MemoryClient
from kvstored_protos.v1.store_pb2 import ReadRequest
from tests.benchmarks.restore.token_partition.partitioned_history import (
    HISTORY_TOKENS,
    NEW_TOKENS,
    History,
    split_at,
)
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import (
    at,
    bring_layers_on_wait,
    check_released,
    make_store,
)

MakeTokens = Callable[[int, int], list[int]]
LAYERS = 4
SPLIT = 37
"""Inside of the fifth chunk."""
VARIANTS: dict[str, Callable[[Path], object]] = {
    "mha": lambda path: write_llama(path, num_hidden_layers=LAYERS),
    "gqa": lambda path: write_llama(path, num_hidden_layers=LAYERS, num_key_value_heads=1),
    "opt": lambda path: write_opt(path, num_hidden_layers=LAYERS),
}
OTHERS = (Source.KV, Source.COMPUTE)


@pytest.fixture(scope="module", params=VARIANTS)
def stored(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_tokens: MakeTokens,
) -> History:
    directory = tmp_path_factory.mktemp(request.param)
    VARIANTS[request.param](directory)
    model = Model.from_directory(directory)
    token_ids = make_tokens(HISTORY_TOKENS + 5, 1)
    formats, client = {}, MemoryClient(make_store())
    for source in (Source.HIDDEN, Source.KV):
        formats[source] = StateFormat.of_model(
            model, "tokens", schedule=LayerSchedule.of((source, LAYERS)), chunk_tokens=CHUNK_TOKENS
        )
        saver = StateSaver(client, formats[source])
        engine = Engine(model, cache_tokens=256, token_budget=32, requests_max=1, sink=saver)
        engine.add_request(token_ids, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        (completion,) = engine.run()
        assert saver.finish().dropped_tokens == 0
        saver.close()
    return History(
        model=model,
        formats=formats,
        token_ids=token_ids,
        chunks=client.store.chunks,
        computed=engine._cache,
        continuation=list(completion.generated_ids),
    )


@pytest.fixture
def history(stored: History) -> Iterator[History]:
    yield stored
    while stored.clients:
        client = stored.clients.pop()
        check_released(client.store)
        client.close()


def read_sizes(client: MemoryClient) -> list[int]:
    """Chunks of each read."""
    return [len(read.keys) for read in client.store.reads]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("token", [0, 1, SPLIT, 40, 109, HISTORY_TOKENS])
def test_any_split_gives_the_computed_states(history: History, token: int, other: Source) -> None:
    history.check(history.client(), split_at(token, other), HISTORY_TOKENS, step_tokens=12)


@pytest.mark.parametrize("other", OTHERS)
def test_the_rounded_partition(history: History, other: Source) -> None:
    rounded = split_at(SPLIT, other).rounded(CHUNK_TOKENS)
    assert rounded.hidden_count % CHUNK_TOKENS == 0
    client = history.client()
    report = history.check(client, rounded, HISTORY_TOKENS)
    chunk_bytes = {each: one.layout.chunk_bytes() for each, one in history.formats.items()}
    hidden_chunks = rounded.hidden_count // CHUNK_TOKENS
    wanted = hidden_chunks * chunk_bytes[Source.HIDDEN]
    if other is Source.KV:
        wanted += (HISTORY_TOKENS // CHUNK_TOKENS - hidden_chunks) * chunk_bytes[Source.KV]
    assert report.device_bytes == wanted


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("token_count", [SPLIT + 1, 100, 111])
def test_a_partition_may_end_inside_of_a_chunk(
    history: History, token_count: int, other: Source
) -> None:
    history.check(history.client(), split_at(SPLIT, other, token_count), token_count)


@pytest.mark.parametrize("other", OTHERS)
def test_tokens_behind_the_last_complete_chunk_are_left(history: History, other: Source) -> None:
    whole = len(history.token_ids) - 1
    assert whole > HISTORY_TOKENS
    history.check(history.client(), split_at(SPLIT, other, whole), HISTORY_TOKENS)
    computed = whole if other is Source.COMPUTE else HISTORY_TOKENS
    history.check(history.client(), split_at(whole, other, whole), computed)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("span_tokens", [8, 24, 50])
def test_a_long_history_comes_in_turns(history: History, span_tokens: int, other: Source) -> None:
    client = history.client()
    partition = split_at(SPLIT, other)
    history.check(client, partition, HISTORY_TOKENS, span_tokens=span_tokens)
    turns = -(-HISTORY_TOKENS // span_tokens)
    chunk_counts = [5, 10] if other is Source.KV else [10]
    assert max(read_sizes(client)) == max(-(-count // turns) for count in chunk_counts)
    assert sum(read_sizes(client)) == sum(chunk_counts)


def test_a_chunk_that_is_cut_is_read_in_both_forms(history: History) -> None:
    client = history.client()
    history.check(client, split_at(SPLIT, Source.KV), HISTORY_TOKENS)
    assert read_sizes(client) == [5, 10]
    client = history.client()
    history.check(client, split_at(SPLIT, Source.COMPUTE), HISTORY_TOKENS)
    assert read_sizes(client) == [10]


def test_two_reads_get_on_in_proportion(history: History) -> None:
    slices = {each: one.layout.slice_bytes(0) for each, one in history.formats.items()}
    client = history.client()
    history.check(client, split_at(SPLIT, Source.KV), HISTORY_TOKENS, slices_in_flight=6)
    assert [read.window_bytes for read in client.store.reads] == [
        2 * slices[Source.HIDDEN],
        4 * slices[Source.KV],
    ]
    client = history.client()
    history.check(client, split_at(SPLIT, Source.COMPUTE), HISTORY_TOKENS)
    assert [read.window_bytes for read in client.store.reads] == [0]


LOST = {
    # The split is at token 37, in chunk 4.
    "hidden": (Source.KV, Source.HIDDEN, 2, 16),
    "hidden of the cut chunk": (Source.KV, Source.HIDDEN, 4, 32),
    "KV of the cut chunk": (Source.KV, Source.KV, 4, SPLIT),
    "KV": (Source.KV, Source.KV, 9, 72),
    "hidden behind computed": (Source.COMPUTE, Source.HIDDEN, 9, 72),
    "hidden of the cut chunk behind computed": (Source.COMPUTE, Source.HIDDEN, 4, SPLIT),
}


@pytest.mark.parametrize("case", LOST)
@pytest.mark.parametrize("layer", [0, LAYERS - 1])
@pytest.mark.parametrize("span_tokens", [24, 1024])
def test_a_slice_that_is_lost_ends_the_prefix_before_its_tokens(
    history: History, case: str, layer: int, span_tokens: int
) -> None:
    other, source, chunk, restored = LOST[case]
    client = history.client()
    client.store.faults.lost_slices = {(history.key(client, source, chunk), layer)}
    history.check(client, split_at(SPLIT, other), restored, span_tokens=span_tokens)
    if case == "hidden" and span_tokens == 24:
        # Of five spans of two chunks of KV: those behind the gap are not read any more.
        assert read_sizes(client).count(2) < 5


@pytest.mark.parametrize("case", LOST)
def test_a_chunk_that_is_not_stored_ends_the_prefix_before_its_tokens(
    history: History, case: str
) -> None:
    other, source, chunk, restored = LOST[case]
    client = history.client()
    del client.store.chunks[history.key(client, source, chunk)]
    history.check(client, split_at(SPLIT, other), restored)
    if case == "hidden":
        assert read_sizes(client) == [2], "KV behind a gap is of no use"


@pytest.mark.parametrize(("other", "restored"), [(Source.KV, 0), (Source.COMPUTE, SPLIT)])
def test_what_needs_no_store_is_there_without_one(
    history: History, other: Source, restored: int
) -> None:
    client = history.client()
    client.store.kill()
    history.check(client, split_at(SPLIT, other), restored)
    history.check(history.client(room_bytes=0), split_at(SPLIT, other), restored)


@pytest.mark.parametrize("other", OTHERS)
def test_an_arena_that_holds_one_span_of_a_part(history: History, other: Source) -> None:
    arena_bytes = history.formats[Source.KV].span_bytes(10)
    client = history.client(room_bytes=arena_bytes)
    history.check(client, split_at(SPLIT, other), HISTORY_TOKENS)


def test_a_span_may_be_larger_than_the_one_before(history: History) -> None:
    """As when something else leaves the arena meanwhile."""
    span_bytes = history.formats[Source.HIDDEN].span_bytes
    client = history.client(room_bytes=span_bytes(10))
    obstacle = client.allocate(span_bytes(7))
    assert obstacle is not None
    client.store.faults.before = at(ReadRequest, obstacle.release)
    history.check(client, split_at(SPLIT, Source.COMPUTE), HISTORY_TOKENS)
    assert read_sizes(client) == [2, 4, 4]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Source.KV, [(0, SPLIT), (SPLIT, HISTORY_TOKENS - SPLIT)] * LAYERS),
        (Source.COMPUTE, [(SPLIT, HISTORY_TOKENS - SPLIT)] * LAYERS),
    ],
)
def test_only_tokens_on_their_side_of_the_split_are_used(
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    other: Source,
    expected: list[tuple[int, int]],
) -> None:
    used: list[tuple[int, int]] = []
    load = StoredPart._load

    def logged_load(self: StoredPart, states: torch.Tensor, tokens: TokenRange, local: Any) -> None:
        used.append((tokens.first, tokens.token_count))
        load(self, states, tokens, local)

    monkeypatch.setattr(StoredPart, "_load", logged_load)
    history.check(history.client(), split_at(SPLIT, other), HISTORY_TOKENS)
    assert used == expected


@pytest.mark.parametrize(("other", "restored"), [(Source.KV, 0), (Source.COMPUTE, SPLIT)])
def test_a_session_lost_between_layers(history: History, other: Source, restored: int) -> None:
    client = history.client()
    waits = iter(range(100))

    def die() -> None:
        if next(waits) == LAYERS - 2:
            client.store.kill()

    bring_layers_on_wait(client.store, die)
    history.check(client, split_at(SPLIT, other), restored)


@pytest.mark.parametrize(
    ("other", "restored"), [(Source.KV, 7 * CHUNK_TOKENS), (Source.COMPUTE, 7 * CHUNK_TOKENS)]
)
def test_what_is_resident_is_used_when_the_store_was_waited_for_too_long(
    history: History, other: Source, restored: int
) -> None:
    client = history.client()
    client.store.faults.reads_hang = True
    source = Source.KV if other is Source.KV else Source.HIDDEN
    client.store.faults.lost_slices = {(history.key(client, source, 7), 2)}
    report = history.check(client, split_at(SPLIT, other), restored, timeout_s=0.05)
    assert report.waited_s >= 0.05


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (
            Source.KV,
            ["read", "read", *[f"{kind} {n}" for n in range(LAYERS) for kind in ("hidden", "kv")]],
        ),
        (Source.COMPUTE, ["read", "compute", *[f"hidden {n}" for n in range(LAYERS)]]),
    ],
)
def test_both_parts_of_a_layer_are_there_before_the_next(
    history: History, monkeypatch: pytest.MonkeyPatch, other: Source, expected: list[str]
) -> None:
    """Reads start first; what is computed waits for none."""
    events: list[str] = []
    load, forward = StoredPart._load, Model.forward

    def logged_load(self: StoredPart, *arguments: Any) -> None:
        kind = self._layout.layers[self._layer].kind
        events.append(f"{'hidden' if kind is StateKind.HIDDEN else 'kv'} {self._layer}")
        load(self, *arguments)

    def logged_forward(self: Model, *arguments: Any, **options: Any) -> torch.Tensor:
        events.append("compute")
        return forward(self, *arguments, **options)

    monkeypatch.setattr(StoredPart, "_load", logged_load)
    monkeypatch.setattr(Model, "forward", logged_forward)
    client = history.client()
    client.store.faults.before = at(ReadRequest, lambda: events.append("read"))
    cache = history.model.make_cache(130)
    history.restorer(client).restore(
        history.token_ids, split_at(SPLIT, other), cache=cache, first_slot=0
    )
    assert events == expected


def test_refusals(history: History) -> None:
    client = history.client()
    cache = history.model.make_cache(130)
    everything = len(history.token_ids)
    with pytest.raises(ValueError, match="a partition of 117 tokens does not fit a history of 117"):
        history.restorer(client).restore(
            history.token_ids, split_at(0, Source.KV, everything), cache=cache, first_slot=0
        )
    with pytest.raises(ValueError, match="step_tokens must be above 0, not 0"):
        history.restorer(client, step_tokens=0)
    kv_format = history.formats[Source.KV]
    with pytest.raises(ValueError, match="hidden_format must store hidden of all layers"):
        TokenPartitionRestorer(client, history.model, hidden_format=kv_format, kv_format=kv_format)
    other = StateFormat.of_model(history.model, "tokens", chunk_tokens=2 * CHUNK_TOKENS)
    with pytest.raises(ValueError, match="chunks of as many tokens"):
        TokenPartitionRestorer(
            client,
            history.model,
            hidden_format=history.formats[Source.HIDDEN],
            kv_format=other,
        )
