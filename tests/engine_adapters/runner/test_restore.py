"""Saved states come back, and whatever does not come back is computed: the tokens never change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

from engine_adapters.device_copies.landing import Landing
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.restore_options import TIMEOUT_S, RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Order
from kvstored_client.testing import MemoryClient, StoredChunk, Wait
from kvstored_protos.v1.store_pb2 import ReadRequest
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import (
    Clock,
    at,
    bring_layers_on_wait,
    check_released,
    make_store,
)
from tests.engine_adapters.runner.restored import restored

MakeTokens = Callable[[int, int], list[int]]
PROMPT_TOKENS = 100
NEW_TOKENS = 20
WHOLE_CHUNKS = (PROMPT_TOKENS + NEW_TOKENS - 1) // CHUNK_TOKENS


@dataclass
class Runner:
    """Runs prompts on the same chunks, each time with a new client as a new process would."""

    model: Model
    state_format: StateFormat
    chunks: dict[bytes, StoredChunk] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)

    def client(self, **options: Any) -> MemoryClient:
        return MemoryClient(make_store(self.chunks), **options)

    def turn(
        self,
        prompt: list[int],
        client: MemoryClient | None,
        *,
        saves: bool = True,
        order: Order = Order.TAIL_FIRST,
        span_chunks: int = 3,
        token_budget: int = 32,
    ) -> tuple[Completion, SaveReport]:
        saver = restorer = None
        if client is not None:
            restorer = Restorer(
                client,
                self.state_format,
                self.model,
                RestoreOptions(
                    order=order,
                    span_bytes=self.state_format.region_bytes(span_chunks),
                    clock=self.clock,
                ),
            )
            saver = StateSaver(client, self.state_format) if saves else None
        engine = Engine(
            self.model,
            cache_tokens=256,
            token_budget=token_budget,
            requests_max=4,
            sink=saver,
            restorer=restorer,
        )
        engine.add_request([5, 6, 7], new_tokens_max=1)
        request_id = engine.add_request(prompt, new_tokens_max=NEW_TOKENS)
        completions = {done.request_id: done for done in engine.run()}
        report = SaveReport()
        if saver is not None:
            report = saver.finish()
            saver.close()
        if restorer is not None:
            restorer.close()
        if client is not None:
            check_released(client.store)
        return completions[request_id], report


@pytest.fixture
def runner(model: Model, state_format: StateFormat) -> Runner:
    return Runner(model, state_format)


@pytest.fixture
def prompt(make_tokens: MakeTokens) -> list[int]:
    return make_tokens(PROMPT_TOKENS, 1)


@pytest.fixture
def history(runner: Runner, prompt: list[int], make_tokens: MakeTokens) -> list[int]:
    """Prompt of a second turn whose first turn is stored."""
    first, report = runner.turn(prompt, runner.client())
    assert report == SaveReport(saved_tokens=WHOLE_CHUNKS * CHUNK_TOKENS)
    return [*first.token_ids, *make_tokens(11, 2)]


@pytest.fixture
def expected(runner: Runner, history: list[int]) -> tuple[int, ...]:
    return runner.turn(history, None)[0].token_ids


def test_complete_chunks_are_stored(runner: Runner, history: list[int]) -> None:
    keys = runner.client().prefix_keys(runner.state_format.layout, history)
    stored = keys[:WHOLE_CHUNKS]
    assert set(runner.chunks) == set(stored)


@pytest.mark.parametrize("order", list(Order))
def test_second_turn_computes_only_what_is_new(
    order: Order, runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    client = runner.client()
    completion, report = runner.turn(history, client, order=order)
    restored = WHOLE_CHUNKS * CHUNK_TOKENS
    assert completion.token_ids == expected
    assert completion.restore.restored_tokens == restored
    assert completion.computed_tokens == len(expected) - 1 - restored
    assert completion.restore.device_bytes == restored * 3 * 2 * 2 * 8 * 4
    assert {read.order for read in client.store.reads} == {order}
    saved_chunks = (len(expected) - 1) // CHUNK_TOKENS - WHOLE_CHUNKS
    assert report == SaveReport(saved_tokens=saved_chunks * CHUNK_TOKENS)


def test_restored_states_are_those_that_were_computed(
    model: Model, state_format: StateFormat, prompt: list[int]
) -> None:
    """Bit for bit: both rotations of a key meet the same angles."""
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format)
    engine = Engine(model, cache_tokens=120, token_budget=32, requests_max=1, sink=saver)
    engine.add_request(prompt, new_tokens_max=20)
    (completion,) = engine.run()
    saver.close()
    cache = model.make_cache(125)
    restorer = Restorer(client, state_format, model)
    report = restored(restorer, completion.token_ids, cache=cache, first_slot=3)
    count = report.restored_tokens
    assert count == WHOLE_CHUNKS * CHUNK_TOKENS
    for ours, computed in (
        (cache.keys, engine._cache.keys),
        (cache.values, engine._cache.values),
    ):
        assert torch.equal(ours[:, 3 : 3 + count], computed[:, :count])
        assert torch.count_nonzero(ours[:, :3]) == 0
        assert torch.count_nonzero(ours[:, 3 + count :]) == 0


def test_last_token_is_always_computed(runner: Runner, prompt: list[int]) -> None:
    whole = prompt[: 10 * CHUNK_TOKENS]
    runner.turn(whole, runner.client())
    again, report = runner.turn(whole, runner.client())
    assert again.restore.restored_tokens == 9 * CHUNK_TOKENS
    assert report.dropped_tokens == 0
    assert again.token_ids == runner.turn(whole, None)[0].token_ids


def test_span_size_changes_nothing(
    runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    for span_chunks, sizes in ((1, [1] * 14), (5, [5, 5, 4]), (100, [14])):
        client = runner.client()
        completion, _ = runner.turn(history, client, span_chunks=span_chunks, saves=False)
        assert completion.token_ids == expected
        assert completion.restore.restored_tokens == WHOLE_CHUNKS * CHUNK_TOKENS
        assert [len(read.keys) for read in client.store.reads] == sizes


@pytest.mark.parametrize("arena_chunks", [0, 1, 2, 3, 7])
def test_arena_smaller_than_the_history(
    arena_chunks: int, runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    arena_bytes = runner.state_format.region_bytes(arena_chunks)
    client = runner.client(room_bytes=arena_bytes)
    completion, _ = runner.turn(history, client, span_chunks=4, saves=False)
    assert completion.token_ids == expected
    restored = WHOLE_CHUNKS * CHUNK_TOKENS if arena_chunks else 0
    assert completion.restore.restored_tokens == restored


def test_absent_daemon(runner: Runner, history: list[int], expected: tuple[int, ...]) -> None:
    client = runner.client()
    client.store.kill()
    completion, report = runner.turn(history, client)
    assert completion.token_ids == expected
    assert completion.restore.restored_tokens == 0
    assert report.saved_tokens == 0
    assert report.dropped_tokens > 0


def test_chunk_evicted_between_match_and_read(
    runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    client = runner.client()
    keys = client.prefix_keys(runner.state_format.layout, history)
    client.store.faults.before = at(ReadRequest, lambda: runner.chunks.pop(keys[4], None))
    completion, report = runner.turn(history, client)
    assert completion.token_ids == expected
    assert completion.restore.restored_tokens == 4 * CHUNK_TOKENS
    saved_chunks = (len(expected) - 1) // CHUNK_TOKENS - 4
    assert report == SaveReport(saved_tokens=saved_chunks * CHUNK_TOKENS)


@pytest.mark.parametrize("layer", [0, 2])
def test_one_damaged_slice_spoils_its_chunk(
    layer: int, runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    client = runner.client()
    keys = client.prefix_keys(runner.state_format.layout, history)
    client.store.faults.lost_slices = {(keys[7], layer)}
    completion, _ = runner.turn(history, client)
    assert completion.token_ids == expected
    assert completion.restore.restored_tokens == 7 * CHUNK_TOKENS


def test_daemon_dies_during_the_second_read(
    runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    client = runner.client()
    ends: Iterator[bool] = iter([True, True])

    def die_at_the_third_read() -> None:
        if not next(ends, False):
            client.store.kill()

    client.store.faults.before = at(ReadRequest, die_at_the_third_read)
    completion, report = runner.turn(history, client)
    assert completion.token_ids == expected
    # The third read begins as soon as the first span was used, beside the use of the second.
    assert completion.restore.restored_tokens in (3 * CHUNK_TOKENS, 6 * CHUNK_TOKENS)
    assert report.saved_tokens == 0


def test_nothing_is_loaded_from_a_region_of_a_lost_session(
    runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    client = runner.client()
    client.store.faults.after = at(ReadRequest, client.store.kill)
    completion, _ = runner.turn(history, client)
    assert completion.token_ids == expected
    assert completion.restore.restored_tokens == 0


def test_resident_part_of_an_unfinished_read_is_used(
    runner: Runner, history: list[int], expected: tuple[int, ...]
) -> None:
    client = runner.client()
    client.store.faults.reads_hang = True

    def wait_too_long(wait: Wait) -> bool:
        """The layer that never settles is waited for once; the reader's thread waits for chunks."""
        is_for_layer = wait.layer is not None
        runner.clock.now_s += (TIMEOUT_S + 1.0) * is_for_layer
        return is_for_layer

    client.store.faults.on_wait = wait_too_long
    keys = client.prefix_keys(runner.state_format.layout, history)
    client.store.faults.lost_slices = {(keys[2], 1)}
    completion, _ = runner.turn(history, client)
    assert completion.token_ids == expected
    assert completion.restore.restored_tokens == 2 * CHUNK_TOKENS


def test_no_read_starts_when_the_store_was_waited_for_too_long(
    runner: Runner, history: list[int]
) -> None:
    """What is resident by then is used all the same."""
    client = runner.client()
    bring_layers_on_wait(client.store, partial(runner.clock.advance, 0.4))
    report = restore_with_clock(runner, history, client)
    # The second one is on its way, and the reader's thread may have begun a third one in the place
    # of the first, before the engine's waited for the second.
    assert len(client.store.reads) <= 3 < WHOLE_CHUNKS
    assert report.restored_tokens == CHUNK_TOKENS
    assert report.waited_s == pytest.approx(3 * 0.4)
    check_released(client.store)


def test_computing_does_not_count_as_waiting(
    runner: Runner, history: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = LayerLoader.load

    def load_slowly(self: LayerLoader, *arguments: Any, **options: Any) -> Landing:
        runner.clock.advance(100.0)
        return load(self, *arguments, **options)

    monkeypatch.setattr(LayerLoader, "load", load_slowly)
    client = runner.client()
    report = restore_with_clock(runner, history, client)
    assert report.restored_tokens == WHOLE_CHUNKS * CHUNK_TOKENS
    assert report.waited_s == 0
    assert report.duration_s == 100 * WHOLE_CHUNKS * runner.model.config.layer_count
    assert report.made_s == report.duration_s


def restore_with_clock(runner: Runner, history: list[int], client: MemoryClient) -> RestoreReport:
    restorer = Restorer(
        client,
        runner.state_format,
        runner.model,
        RestoreOptions(span_bytes=1, timeout_s=1.0, clock=runner.clock),
    )
    return restored(restorer, history, cache=runner.model.make_cache(120), first_slot=0)


@pytest.mark.parametrize("timeout_s", [0.0, 601.0])
def test_refuses_a_timeout_that_no_daemon_accepts(timeout_s: float, runner: Runner) -> None:
    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        Restorer(
            runner.client(), runner.state_format, runner.model, RestoreOptions(timeout_s=timeout_s)
        )
