"""The protocol of LMCache's ``native_plugin``, over a store in memory."""

import logging
import os
import threading
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from engine_adapters.lmcache import Connector, object_store
from engine_adapters.lmcache.found_leases import FoundLeases
from engine_adapters.lmcache.stored_object import OBJECT_BYTES_MAX, key_of
from kvstored_client import Reason, Region
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from tests.engine_adapters.breakers import alarmed, calm
from tests.engine_adapters.lmcache.calls import completed, deleted, found, loaded, stored, view_of

MIB = 1024 * 1024
SIZE = 20_000
"""No multiple of anything."""
OBJECTS = {f"model@00000000@0@{number:02x}": os.urandom(SIZE) for number in range(7)}
NAMES = list(OBJECTS)


@pytest.fixture(autouse=True)
def _no_call_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "Breaker", calm)


@pytest.fixture
def client(store: MemoryStore) -> MemoryClient:
    return MemoryClient(store, arena_bytes=2 * MIB)


@pytest.fixture
def connector(client: MemoryClient) -> Iterator[Connector]:
    connector = Connector(client=client)
    yield connector
    connector.close()


def key(client: MemoryClient, name: str) -> bytes:
    return key_of(name, namespace=client.namespace, weights="")


def test_what_was_stored_is_loaded(connector: Connector) -> None:
    assert found(connector, NAMES) == [False] * 7
    assert stored(connector, OBJECTS) == (True, [True] * 7)
    assert found(connector, ["none", *NAMES]) == [False, *[True] * 7]
    assert loaded(connector, NAMES, SIZE) == list(OBJECTS.values())
    assert loaded(connector, [NAMES[2], "none"], SIZE) == [OBJECTS[NAMES[2]], None]


def test_objects_of_several_sizes_go_together(connector: Connector) -> None:
    objects = {f"object {size}": os.urandom(size) for size in (1, 4096, 600_000, 5, 4096 * 3)}
    assert stored(connector, objects) == (True, [True] * 5)
    for name, data in objects.items():
        assert loaded(connector, [name], len(data)) == [data]


def test_an_object_was_not_stored_while_others_had_the_arena(
    connector: Connector, client: MemoryClient
) -> None:
    """Bug: puts of one call run together, and the arena may have no room for all of them."""
    refused = [None]
    allocate = client.allocate

    def refuse_once(byte_count: int) -> Region | None:
        return refused.pop() if refused else allocate(byte_count)

    with patch.object(client, "allocate", side_effect=refuse_once):
        assert stored(connector, OBJECTS) == (True, [True] * 7)
    assert not refused


def test_objects_that_do_not_fit_into_the_arena_at_once_go_in_parts(
    connector: Connector, store: MemoryStore
) -> None:
    objects = {f"large {number}": os.urandom(900_000) for number in range(3)}
    assert stored(connector, objects) == (True, [True] * 3)
    assert store.call_counts[CallName.PUT] == 3
    assert loaded(connector, list(objects), 900_000) == list(objects.values())


def test_an_object_of_another_size_is_a_miss(connector: Connector) -> None:
    stored(connector, OBJECTS)
    assert loaded(connector, NAMES, SIZE - 1) == [None] * 7
    assert loaded(connector, NAMES, SIZE + 1) == [None] * 7


def test_an_object_of_another_size_was_never_replaced(connector: Connector) -> None:
    """Bug: what is stored is known by its key, so the new bytes counted as stored already."""
    stored(connector, OBJECTS)
    name, size = NAMES[0], SIZE // 2
    assert loaded(connector, [name], size) == [None]
    assert stored(connector, {name: b"x" * size}) == (True, [True])
    assert loaded(connector, [name], size) == [b"x" * size]
    assert found(connector, NAMES) == [True] * 7


def test_look_ups_waited_one_after_the_other_for_a_daemon_that_hangs(
    connector: Connector, store: MemoryStore
) -> None:
    """Bug: each waited for as long as a call may take."""
    stored(connector, OBJECTS)
    connector._objects._breaker = alarmed()
    assert found(connector, NAMES) == [True] * 7
    for _ in range(5):
        assert found(connector, NAMES) == [False] * 7
    assert store.call_counts[CallName.PIN] == 1


def test_other_weights_and_other_salts_are_a_miss(store: MemoryStore) -> None:
    for weights in ("", "revision 2"):
        client = MemoryClient(store, arena_bytes=2 * MIB)
        connector = Connector(client=client, weights=weights)
        assert found(connector, NAMES) == [False] * 7
        assert stored(connector, OBJECTS)[0]
        assert found(connector, [f"{NAMES[0]}@salt"]) == [False]
        connector.close()


def test_what_is_deleted_is_gone(connector: Connector) -> None:
    stored(connector, OBJECTS)
    assert deleted(connector, NAMES[:2]) == (True, [True, True])
    assert found(connector, NAMES) == [False] * 2 + [True] * 5


def test_a_refused_deletion_counted_as_done(
    connector: Connector, store: MemoryStore, client: MemoryClient
) -> None:
    """Bug: LMCache then never evicted what it took for gone."""
    stored(connector, OBJECTS)
    store.faults.refusals[CallName.DELETE] = Reason.INTERNAL
    assert deleted(connector, [*NAMES[:2], "none"])[1] == [False, False, True]
    assert found(connector, NAMES[:2]) == [True, True]
    # What did not load and could not be deleted is tried again before the next put.
    assert loaded(connector, NAMES[:1], SIZE - 1) == [None]
    stored(connector, {NAMES[0]: b"x" * (SIZE - 1)})
    del store.faults.refusals[CallName.DELETE]
    stored(connector, {NAMES[0]: b"x" * (SIZE - 1)})
    assert loaded(connector, NAMES[:1], SIZE - 1) == [b"x" * (SIZE - 1)]
    store.faults.refusals[CallName.CHANGES] = Reason.INTERNAL
    assert deleted(connector, NAMES[:1])[1] == [False]


def test_a_call_that_got_no_thread_was_answered_and_run_later(
    connector: Connector, store: MemoryStore
) -> None:
    """Bug: its memory was LMCache's again, so other bytes were stored under the old name."""
    with patch.object(threading.Thread, "start", side_effect=RuntimeError("no new thread")):
        assert stored(connector, OBJECTS) == (True, [True] * 7)
        assert found(connector, NAMES) == [True] * 7
        assert deleted(connector, NAMES) == (True, [True] * 7)


def test_what_was_found_is_kept_for_its_load(connector: Connector, store: MemoryStore) -> None:
    stored(connector, OBJECTS)
    found(connector, NAMES[:3])
    (session,) = store.sessions.values()
    assert sum(len(lease.keys) for lease in session.leases.values()) == 3
    connector._objects._found = FoundLeases(lease_s=20, lease_count_max=1)
    for name in NAMES[3:]:
        found(connector, [name])
    assert [len(lease.keys) for lease in session.leases.values()] == [3, 1]


def test_a_lost_slice_is_a_miss_of_its_object_alone(
    connector: Connector, store: MemoryStore, client: MemoryClient
) -> None:
    stored(connector, OBJECTS)
    store.faults.lost_slices.add((key(client, NAMES[3]), 0))
    expected = list(OBJECTS.values())
    assert loaded(connector, NAMES, SIZE) == [*expected[:3], None, *expected[4:]]


@pytest.mark.parametrize("call", [CallName.PUT, CallName.READ, CallName.PIN, CallName.REGISTER])
def test_a_store_that_refuses_is_a_miss(
    call: CallName, connector: Connector, store: MemoryStore
) -> None:
    if call is not CallName.REGISTER:
        stored(connector, OBJECTS)
    store.faults.refusals[call] = Reason.INTERNAL
    if call in (CallName.PUT, CallName.REGISTER):
        assert stored(connector, {"new": b"bytes"}) == (False, [False])
    if call in (CallName.READ, CallName.REGISTER):
        assert loaded(connector, NAMES, SIZE) == [None] * 7
    if call in (CallName.PIN, CallName.REGISTER):
        assert found(connector, NAMES) == [False] * 7


def test_a_store_that_ends_is_a_miss_until_it_is_back(
    connector: Connector, store: MemoryStore
) -> None:
    stored(connector, OBJECTS)
    store.kill()
    assert found(connector, NAMES) == [False] * 7
    assert loaded(connector, NAMES, SIZE) == [None] * 7
    assert stored(connector, {"new": b"bytes"}) == (False, [False])
    assert deleted(connector, NAMES) == (True, [False] * 7)
    store.start()
    assert loaded(connector, NAMES, SIZE) == list(OBJECTS.values())


def test_a_full_arena_is_a_miss(connector: Connector, store: MemoryStore) -> None:
    stored(connector, OBJECTS)
    store.faults.arena_is_full = True
    assert loaded(connector, NAMES, SIZE) == [None] * 7
    assert stored(connector, {"new": b"bytes"}) == (False, [False])


def test_a_failure_of_the_connector_is_a_miss(
    connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("engine_adapters.lmcache.object_store.layout_of", broken)
    assert stored(connector, OBJECTS) == (False, [False] * 7)
    number = connector.submit_batch_exists(NAMES)
    assert completed(connector, number) == (False, [False] * 7)


def test_what_is_too_large_is_said_once(
    connector: Connector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine_adapters.lmcache.object_store.OBJECT_BYTES_MAX", 100)
    monkeypatch.setattr(connector, "_warned_bytes", 100)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert stored(connector, {"large": bytes(101), "small": b"1"}) == (False, [False, True])
    assert len(caplog.records) == 1
    assert "101 bytes" in caplog.text
    assert OBJECT_BYTES_MAX == 128 * MIB


def test_a_closed_connector_still_answers(client: MemoryClient) -> None:
    connector = Connector(client=client)
    stored(connector, OBJECTS)
    connector.close()
    connector.close()
    connector.submit_batch_set(["name"], [view_of(b"1")])
    assert connector.drain_completions() == []
