"""Entries in a store in memory."""

from collections.abc import Iterator

import pytest

from engine_adapters.conversation.journal import Journal
from engine_adapters.link.entries import NAME_SUFFIX, Entries
from engine_adapters.link.errors import ExpiredError, LinkError
from kvstored_client.testing import MemoryClient, MemoryStore

MODEL = "a model"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.7

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> Iterator[MemoryClient]:
    with MemoryClient(store) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def entries(client: MemoryClient, clock: Clock) -> Entries:
    return Entries(client, MODEL, clock=clock)


@pytest.mark.parametrize("token_ids", [(), (7,), tuple(range(3000))], ids=len)
def test_an_entry_is_found_by_its_id_and_its_tokens(
    client: MemoryClient, entries: Entries, token_ids: tuple[int, ...]
) -> None:
    entry = entries.add(token_ids)
    later = Entries(client, MODEL)
    assert later.get(entry.entry_id) == later.find(token_ids) == entry
    assert entry.token_ids == token_ids
    assert entry.created_s == 1000
    assert entry.expires_s is None
    assert later.list() == [entry]
    assert later.find([*token_ids, 1]) is None


def test_ids_are_random(entries: Entries) -> None:
    assert entries.add([1]).entry_id != entries.add([1]).entry_id


def test_an_entry_expires_by_itself(entries: Entries, clock: Clock) -> None:
    entry, stays = entries.add([1], ttl_s=10), entries.add([2])
    clock.now_s = 1009.9
    assert entries.get(entry.entry_id).expires_s == 1010
    clock.now_s = 1010
    with pytest.raises(ExpiredError, match=entry.entry_id):
        entries.get(entry.entry_id)
    assert entries.find([1]) is None
    assert entries.list() == [stays]
    assert not entries.expire(entry.entry_id)


def test_an_entry_is_ended(entries: Entries) -> None:
    entry = entries.add([1])
    assert entries.expire(entry.entry_id)
    assert not entries.expire(entry.entry_id)
    with pytest.raises(ExpiredError) as caught:
        entries.get(entry.entry_id)
    assert caught.value.entry_id == entry.entry_id


@pytest.mark.parametrize(
    ("first_s", "renewed_s", "expected_s"),
    [(10, 20, 1020), (20, 10, 1020), (10, None, None), (None, 10, None), (None, None, None)],
)
def test_a_renewal_never_shortens(
    entries: Entries, first_s: int | None, renewed_s: int | None, expected_s: int | None
) -> None:
    entry = entries.renew(entries.add([1, 2], ttl_s=first_s), ttl_s=renewed_s)
    assert entry.expires_s == expected_s
    assert entries.get(entry.entry_id) == entry


def test_other_namespaces_and_models_see_nothing(
    client: MemoryClient, store: MemoryStore, entries: Entries
) -> None:
    entry = entries.add([1])
    with MemoryClient(store, salt="another") as other:
        for strange in (Entries(other, MODEL), Entries(client, "another model")):
            assert strange.find([1]) is None
            with pytest.raises((ExpiredError, LinkError)):
                strange.get(entry.entry_id)


def test_an_entry_that_was_never_finished_is_none(client: MemoryClient, entries: Entries) -> None:
    entry = entries.add([5, 6, 7])
    (name,) = (one.removesuffix(NAME_SUFFIX) for one in client.sequences.list())
    entries.expire(entry.entry_id)
    journal = Journal(client, MODEL, kind="context cache", suffix=NAME_SUFFIX)
    journal.append(name, journal.open(name), [1, 1000, 3, 5, 6, 7])
    with pytest.raises(ExpiredError):
        entries.get(entry.entry_id)


def test_names_of_others_are_left_alone(client: MemoryClient, entries: Entries) -> None:
    Journal(client, MODEL, suffix=NAME_SUFFIX).open("somebody's own")
    assert entries.list() == []


def test_token_ids_that_are_lost_cannot_be_told(
    client: MemoryClient, store: MemoryStore, entries: Entries
) -> None:
    entry = entries.add([1])
    store.chunks.clear()
    with pytest.raises(LinkError, match=f"context cache .{entry.entry_id}.*generate_context_cache"):
        entries.get(entry.entry_id)


def test_a_store_that_is_gone_keeps_nothing(store: MemoryStore, entries: Entries) -> None:
    entry = entries.add([1], ttl_s=5)
    store.kill()
    for call in (lambda: entries.add([2]), lambda: entries.renew(entry)):
        with pytest.raises(LinkError, match="context cache"):
            call()
