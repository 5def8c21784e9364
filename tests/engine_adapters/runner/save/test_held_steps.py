"""Steps of a decoding batch that wait on the device, and go together."""

import random
import threading
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
import torch

from engine_adapters.device_copies import open_copies
from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.runner.save import saver as saver_module
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Reason, SnapshotGeometry
from kvstored_client.testing import MemoryClient
from kvstored_contract.layout import align_up
from kvstored_protos.v1.store_pb2 import AppendRequest
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import make_store
from tests.engine_adapters.runner.save.told_states import LAYERS, check_chunk, step
from tests.engine_adapters.runner.steps import segments_of

MakeTokens = Callable[[int, int], list[int]]
STEPS = 4


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets savers hold so many steps, as on a GPU, whose copies are late."""

    def hold(steps: int) -> None:
        copies = DelayedCopies()
        monkeypatch.setattr(saver_module, "open_copies", lambda device: copies)
        monkeypatch.setattr(saver_module, "gathered_steps", lambda device: steps)
        monkeypatch.setattr(saver_module, "gathered_bytes", lambda device: 1 << 40)

    return hold


@pytest.fixture
def saver(
    client: MemoryClient, state_format: StateFormat, held: Callable[[int], None]
) -> Iterator[StateSaver]:
    held(STEPS)
    saver = StateSaver(client, state_format)
    yield saver
    saver.close()
    assert client.store.regions_in_use == 0


def let_wait(saver: StateSaver, client: MemoryClient, rows_max: int) -> None:
    """So many rows may wait, whatever the arena has."""
    row_bytes = SnapshotGeometry(saver._format.states, 1).byte_count
    saver._held.set_room(rows_max * row_bytes, row_bytes=row_bytes)
    saver._room_epoch = client.epoch


def appends(client: MemoryClient) -> list[AppendRequest]:
    return client.store.asked(AppendRequest)


def appended_counts(client: MemoryClient) -> list[list[int]]:
    """Tokens of each sequence in each append."""
    return [[item.token_count for item in one.items] for one in appends(client)]


def test_only_a_gpu_gathers_steps() -> None:
    assert open_copies.gathered_steps(torch.device("cpu")) == 1
    assert open_copies.gathered_steps(torch.device("cuda")) > 1


def test_steps_of_a_batch_go_together_row_by_row(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = [make_tokens(40, seed) for seed in range(2)]
    for request_id in range(2):
        saver.begin_request(request_id, tokens[request_id], 0)
    step(saver, (0, 0, 3), (1, 0, 6))
    for n in range(2 * STEPS + 2):
        # A row between both is nobody's: its request was not announced.
        step(saver, (0, 3 + n, 1), (7, 0, 1), (1, 6 + n, 1))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS + 2 * CHUNK_TOKENS)
    # The prefill, two times as many steps as go together, and the rest.
    assert appended_counts(client) == [
        [3, 6],
        [STEPS, STEPS],
        [STEPS, STEPS],
        [2, 2],
    ]
    for number in range(2):
        keys = client.prefix_keys(state_format.layout, tokens[number])
        for chunk in range(number + 1):
            # States say whose they are.
            check_chunk(client, keys[chunk], 1000 * number + CHUNK_TOKENS * chunk)


def test_a_step_that_never_ended_is_forgotten_and_those_before_it_are_not(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 6))
    step(saver, (0, 6, 1))
    saver.begin_step(segments_of(((0, 7, 1),))[0])
    saver.take(0, torch.empty(1, 0), torch.empty(1, 2, 8), torch.empty(1, 2, 8))
    saver.abandon_step()
    saver.end_request(0)
    assert saver.finish() == SaveReport()
    assert appended_counts(client) == [[6], [1]]


def test_what_waits_is_handed_over_before_its_sequence_jumps(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 7))
    step(saver, (0, 7, 1))
    step(saver, (0, 16, 1))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=8)
    assert [one.items[0].first_token for one in appends(client)] == [0, 7, 16]


def test_a_sequence_that_was_cut_while_a_step_began_was_appended_all_the_same(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """*Bug:* its row was in the step already when the one after it jumped."""
    for request_id in range(2):
        saver.begin_request(request_id, make_tokens(80, request_id), 0)
    step(saver, (0, 0, 1), (1, 0, 1))
    allocate, client.allocate = client.allocate, Mock(return_value=None)  # type: ignore[method-assign]
    saver.begin_step(segments_of(((0, 1, 1), (1, 16, 1)))[0])
    client.allocate = allocate  # type: ignore[method-assign]
    for layer in range(LAYERS):
        saver.take(layer, torch.empty(2, 0), torch.zeros(2, 2, 8), torch.zeros(2, 2, 8))
    saver.end_step()
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(dropped_tokens=3)
    assert [one.items[0].first_token for one in appends(client)] == [16]
    assert appended_counts(client) == [[1]]


@pytest.mark.parametrize("ends_by", ["end", "step", "jump"])
def test_steps_for_which_the_arena_has_no_room_end_their_sequences_once(
    state_format: StateFormat,
    held: Callable[[int], None],
    make_tokens: MakeTokens,
    ends_by: str,
) -> None:
    held(STEPS)
    row = SnapshotGeometry(state_format.layout, 1).byte_count
    client = MemoryClient(make_store(), room_bytes=8 * align_up(row))
    saver = StateSaver(client, state_format)
    let_wait(saver, client, 1000)
    for request_id in range(2):
        saver.begin_request(request_id, make_tokens(80, request_id), 0)
    step(saver, (0, 0, 1), (1, 0, 1))
    step(saver, (0, 1, 1), (1, 1, 1))
    region = client.allocate(8 * align_up(row))
    assert region is not None
    dropped = 4
    if ends_by == "step":
        step(saver, (0, 2, 2), (1, 2, 2))
        dropped += 4
    elif ends_by == "jump":
        step(saver, (0, 16, 1), (1, 16, 1))
        dropped += 2
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(dropped_tokens=dropped)
    assert not client.store.sequences
    region.release()
    saver.close()
    client.close()


def test_steps_for_which_the_device_has_no_room_are_not_saved(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver.begin_request(0, make_tokens(40, 1), 0)
    for n in range(STEPS - 1):
        step(saver, (0, n, 1))
    monkeypatch.setattr(
        saver._held, "parts", Mock(side_effect=torch.OutOfMemoryError("out of memory"))
    )
    step(saver, (0, STEPS - 1, 1))
    saver.end_request(0)
    assert saver.finish() == SaveReport(dropped_tokens=STEPS)
    assert client.store.regions_in_use == 0


def test_another_failure_of_the_device_is_not_hidden(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 1))
    monkeypatch.setattr(saver._held, "parts", Mock(side_effect=RuntimeError("the device is gone")))
    with pytest.raises(RuntimeError, match="gone"):
        saver.end_request(0)
    assert client.store.regions_in_use == 0
    saver.end_request(0)


@pytest.mark.parametrize(("rows_max", "steps"), [(3, 1), (4, 2), (7, 3), (1000, STEPS)])
def test_no_more_waits_than_has_room(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens, rows_max: int, steps: int
) -> None:
    for request_id in range(2):
        saver.begin_request(request_id, make_tokens(40, request_id), 0)
    let_wait(saver, client, rows_max)
    for n in range(2 * steps):
        step(saver, (0, n, 1), (1, n, 1))
    saver.finish()
    assert [one.items[0].token_count for one in appends(client)] == [steps, steps]


def test_an_arena_says_how_much_may_wait(
    saver: StateSaver, client: MemoryClient, make_tokens: MakeTokens
) -> None:
    row = SnapshotGeometry(saver._format.states, 1).byte_count
    memory = client.arena_memory
    assert memory is not None
    bytes_max = min(saver_module.HELD_BYTES_MAX, memory.nbytes // saver_module.HELD_SHARE)
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 1))
    assert saver._held._rows_max == bytes_max // row


def test_the_arena_of_a_new_session_says_how_much_may_wait(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """*Bug:* that of the old one did, and what waited had no room in a smaller one."""
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 1))
    rows_max = saver._held._rows_max
    let_wait(saver, client, 1)
    client.store.kill()
    client.store.start()
    assert client.available()
    step(saver, (0, 1, 1))
    assert saver._held._rows_max == rows_max > 1


def test_what_waits_is_left_alone_by_threads_that_wait_for_other_sequences(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """*Bug:* ``finish`` of another thread handed steps over which the engine's was adding to."""
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 1))
    thread = threading.Thread(target=saver.finish)
    thread.start()
    thread.join()
    assert saver._held.step_count == 1
    assert not appends(client)


def test_a_step_that_failed_ended_all_requests_of_the_engine(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """*Bug:* an engine ends the requests of a step before it abandons it."""
    for request_id in range(3):
        saver.begin_request(request_id, make_tokens(40, request_id), 0)
    for n in range(2):
        step(saver, (0, n, 1), (1, n, 1))
    saver.begin_step(segments_of(((0, 2, 1), (1, 2, 1)))[0])
    saver.end_request(0)
    saver.end_request(1)
    saver.abandon_step()
    step(saver, (2, 0, CHUNK_TOKENS))
    saver.end_request(2)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS)
    assert appended_counts(client) == [
        [2, 2],
        [CHUNK_TOKENS],
    ]


def test_rows_of_others_in_the_same_tensors_are_not_kept(
    saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """Scattered tokens of linked prompts stand after ours, and are many."""
    saver.begin_request(0, make_tokens(40, 1), 0)
    saver.begin_step(segments_of(((0, 0, 1),))[0])
    for layer in range(LAYERS):
        keys, values = torch.zeros(500, 2, 8), torch.ones(500, 2, 8)
        saver.take(layer, torch.empty(500, 0), keys, values)
    saver.end_step()
    assert saver._held._kept_bytes == [LAYERS * 2 * 2 * 8 * 4]


def test_states_that_are_parts_of_larger_tensors_count_as_these(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """Queries, keys and values are one tensor."""
    saver.begin_request(0, make_tokens(40, 1), 0)
    let_wait(saver, client, 8)
    for n in range(3):
        saver.begin_step(segments_of(((0, n, 1),))[0])
        for layer in range(LAYERS):
            fused = torch.zeros(1, 40, 8)
            saver.take(layer, torch.empty(1, 0), fused[:, :2], fused[:, 2:4])
        saver.end_step()
        saver.finish()
        # Two of them have more than the eight rows that may wait.
        assert len(appends(client)) == n + 1


def test_a_sequence_that_stopped_lets_the_others_wait(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """*Bug:* it was taken for one that jumps in every step, and all were handed over before it."""
    for request_id in range(2):
        saver.begin_request(request_id, make_tokens(40, request_id), 0)
    client.store.faults.append_rejection = lambda index, name: (
        Reason.STORE_FULL if name.endswith("-1") else None
    )
    step(saver, (0, 0, 2), (1, 0, 2))
    saver.finish()
    for n in range(2, 2 + STEPS):
        step(saver, (0, n, 1), (1, n, 1))
    saver.finish()
    assert appended_counts(client) == [
        [2, 2],
        [STEPS],
    ]


def batches(generator: random.Random) -> Iterator[list[tuple[int, int, int]]]:
    """Random steps: sequences begin, decode, prefill and end."""
    reached: dict[int, int] = {}
    begun = 0
    for _ in range(60):
        if begun < 6 and (not reached or generator.random() < 0.2):
            reached[begun] = 0
            begun += 1
        if reached and generator.random() < 0.1:
            reached.pop(generator.choice(list(reached)))
        parts = []
        for request_id, first in reached.items():
            count = generator.choice([1, 1, 1, 1, 1, 1, 1, generator.randrange(1, 7)])
            if first + count <= 60:
                parts.append((request_id, first, count))
        reached.update({request_id: first + count for request_id, first, count in parts})
        yield parts


def stored(
    state_format: StateFormat, make_tokens: MakeTokens, seed: int
) -> dict[bytes, list[bytes]]:
    with MemoryClient(make_store()) as client:
        saver = StateSaver(client, state_format)
        running: set[int] = set()
        for parts in batches(random.Random(seed)):
            now = {request_id for request_id, _, _ in parts}
            for request_id in running - now:
                saver.end_request(request_id)
            for request_id in now - running:
                first = next(each for each in parts if each[0] == request_id)[1]
                if first:
                    now.discard(request_id)
                    continue
                saver.begin_request(request_id, make_tokens(80, request_id), 0)
            running = now
            if parts:
                step(saver, *parts)
        saver.close()
        return {key: list(chunk.slices) for key, chunk in client.store.chunks.items()}


@pytest.mark.parametrize("seed", range(6))
def test_the_store_has_the_same_however_many_steps_go_together(
    state_format: StateFormat, held: Callable[[int], None], make_tokens: MakeTokens, seed: int
) -> None:
    held(1)
    alone = stored(state_format, make_tokens, seed)
    assert len(alone) > 5
    for steps in (2, 3, 8):
        held(steps)
        assert stored(state_format, make_tokens, seed) == alone
