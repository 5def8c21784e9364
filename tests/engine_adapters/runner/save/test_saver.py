import threading
from collections.abc import Callable
from functools import partial
from unittest.mock import Mock

import pytest

from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.runner.model.step import Segment
from engine_adapters.runner.save import saver as saver_module
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.save.snapshot import Snapshot
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import SnapshotGeometry
from kvstored_client.testing import CallName, MemoryClient
from kvstored_contract.layout import align_up
from kvstored_protos.v1.sequence_pb2 import FlushSequenceRequest
from kvstored_protos.v1.store_pb2 import AppendRequest
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import at
from tests.engine_adapters.runner.save.told_states import check_chunk, step
from tests.support.waiting import wait_until

MakeTokens = Callable[[int, int], list[int]]


def test_rows_of_interleaved_sequences_reach_their_chunks(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = [make_tokens(40, seed) for seed in range(2)]
    saver.begin_request(0, tokens[0], 0)
    saver.begin_request(1, tokens[1], 2 * CHUNK_TOKENS)
    step(saver, (0, 0, 5), (1, 16, 20))
    step(saver, (1, 36, 1), (0, 5, 30))
    step(saver, (0, 35, 5), (1, 37, 3))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=40 + 40 - 2 * CHUNK_TOKENS)
    assert client.store.call_counts[CallName.APPEND] == 3
    keys = [client.prefix_keys(state_format.layout, each) for each in tokens]
    assert set(client.store.chunks) == {*keys[0], *keys[1][2:]}
    for request_id, first_chunk in ((0, 0), (1, 2)):
        for index in range(first_chunk, 5):
            position = index * CHUNK_TOKENS + 1000 * request_id
            check_chunk(client, keys[request_id][index], position)


def test_rows_are_appended_when_their_copies_are_over(
    client: MemoryClient,
    state_format: StateFormat,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long they take: until then the region holds poison."""
    copies, settling = DelayedCopies(), threading.Event()
    settle = Snapshot.settle

    def noted_settle(snapshot: Snapshot) -> None:
        settling.set()
        settle(snapshot)

    monkeypatch.setattr(saver_module, "open_copies", lambda device: copies)
    monkeypatch.setattr(Snapshot, "settle", noted_settle)
    saver, tokens = StateSaver(client, state_format), make_tokens(CHUNK_TOKENS, 1)
    appended = client.store.call_counts
    saver.begin_request(0, tokens, 0)
    with copies.stopped():
        step(saver, (0, 0, CHUNK_TOKENS))
        wait_until(lambda: settling.is_set() or appended[CallName.APPEND] > 0)
        assert appended[CallName.APPEND] == 0
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS)
    (key,) = client.prefix_keys(state_format.layout, tokens)
    check_chunk(client, key, 0)
    saver.close()


def test_what_a_slow_device_makes_durable_later_is_saved(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """Bug: it was counted as dropped, and the sequence was left behind."""
    client.store.faults.devices_are_late = True
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 2 * CHUNK_TOKENS + 3))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=2 * CHUNK_TOKENS, late_tokens=2 * CHUNK_TOKENS)
    assert client.store.sequences == {}
    (flush,) = client.store.asked(FlushSequenceRequest)
    # Snapshots of other sequences wait behind it.
    assert 0 < flush.deadline_ms <= 2000


def test_incomplete_chunks_are_not_saved(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 2 * CHUNK_TOKENS - 1))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS)
    assert client.store.sequences == {}


def test_generated_tokens_get_their_keys_when_they_are_known(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(CHUNK_TOKENS + 3, 1)
    saver.begin_request(0, tokens, 0)
    step(saver, (0, 0, len(tokens)))
    for position in range(len(tokens), 2 * CHUNK_TOKENS):
        tokens.append(position)
        step(saver, (0, position, 1))
    saver.finish()
    keys = client.prefix_keys(state_format.layout, tokens)
    assert list(client.store.chunks) == keys


def test_a_full_arena_drops_the_step_as_a_whole(
    client: MemoryClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    rows = SnapshotGeometry(state_format.layout, 20).byte_count
    small = MemoryClient(client.store, room_bytes=align_up(rows))
    saver = StateSaver(small, state_format)
    tokens = [make_tokens(80, seed) for seed in range(3)]
    for request_id in range(3):
        saver.begin_request(request_id, tokens[request_id], 0)
    step(saver, (0, 0, 10), (1, 0, 10))
    saver.finish()
    step(saver, (0, 10, 20), (1, 10, 20))
    assert saver.finish().dropped_tokens == 40
    # What they have is kept at once, and their open chunks take no room any more.
    assert [name for name, _ in small.store.sequences] == [f"{saver._prefix}-0-2"]
    # Nothing behind the gap is saved, and the others go on.
    step(saver, (0, 30, 1), (2, 0, 16))
    for request_id in range(3):
        saver.end_request(request_id)
    assert saver.finish() == SaveReport(saved_tokens=2 * 8 + 16, dropped_tokens=41)
    saver.close()
    assert set(small.store.chunks) == {
        small.prefix_keys(state_format.layout, tokens[0])[0],
        small.prefix_keys(state_format.layout, tokens[1])[0],
        *small.prefix_keys(state_format.layout, tokens[2])[:2],
    }
    assert small.store.regions_in_use == 0


def test_steps_before_a_full_arena_are_saved(
    client: MemoryClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    """The daemon is behind: they are still waiting for it when there is no room for the next."""
    rows = SnapshotGeometry(state_format.layout, 16).byte_count
    small = MemoryClient(client.store, room_bytes=3 * align_up(rows))
    saver = StateSaver(small, state_format)
    goes_on = threading.Event()
    small.store.faults.before = at(AppendRequest, partial(goes_on.wait, 60))
    saver.begin_request(0, make_tokens(80, 1), 0)
    for first in range(0, 64, 16):
        step(saver, (0, first, 16))
    goes_on.set()
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=48, dropped_tokens=16)
    saver.close()


def test_a_step_that_never_ended_is_forgotten(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(80, 1)
    saver.begin_request(0, tokens, 0)
    saver.begin_step(
        [Segment(request_id=0, first_row=0, token_count=5, first_position=0, first_slot=0)]
    )
    step(saver, (0, 0, 16))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=16)
    assert set(client.store.chunks) == set(client.prefix_keys(state_format.layout, tokens)[:2])


def test_a_snapshot_that_cannot_be_settled_is_given_back_all_the_same(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.begin_step(
        [Segment(request_id=0, first_row=0, token_count=5, first_position=0, first_slot=0)]
    )
    monkeypatch.setattr(Snapshot, "settle", Mock(side_effect=RuntimeError("the device is gone")))
    with pytest.raises(RuntimeError, match="gone"):
        saver.abandon_step()
    assert client.store.regions_in_use == 0
    saver.abandon_step()


def test_requests_that_were_not_announced_are_ignored(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """As while they are being restored: what is computed then is stored."""
    step(saver, (7, 0, 16))
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (7, 16, 3), (0, 0, 16))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=16)


def test_tokens_before_the_stored_ones_are_not_saved_again(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(80, 1)
    saver.begin_request(0, tokens, 2 * CHUNK_TOKENS)
    step(saver, (0, 4, 3))
    step(saver, (0, 7, 25))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=2 * CHUNK_TOKENS)
    keys = client.prefix_keys(state_format.layout, tokens)
    assert list(client.store.chunks) == keys[2:4]
    check_chunk(client, keys[2], 2 * CHUNK_TOKENS)


def test_saving_goes_on_where_a_jump_ends(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    """The tokens between were loaded, so they are stored already."""
    tokens = make_tokens(80, 1)
    saver.begin_request(0, tokens, CHUNK_TOKENS)
    step(saver, (0, 0, 20))
    step(saver, (0, 20, 4))
    step(saver, (0, 5 * CHUNK_TOKENS, 9))
    step(saver, (0, 5 * CHUNK_TOKENS + 9, 7))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=4 * CHUNK_TOKENS)
    keys = client.prefix_keys(state_format.layout, tokens)
    assert list(client.store.chunks) == [keys[1], keys[2], keys[5], keys[6]]
    for chunk in (1, 2, 5, 6):
        check_chunk(client, keys[chunk], chunk * CHUNK_TOKENS)
    assert client.store.sequences == {}


def test_stored_tokens_end_on_a_chunk_boundary(saver: StateSaver) -> None:
    with pytest.raises(ValueError, match="do not end on a chunk boundary"):
        saver.begin_request(0, [1, 2, 3], 3)
