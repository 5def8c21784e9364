"""Entries in a store in memory."""

import re
from unittest.mock import Mock

import pytest

from engine_adapters.conversation.journal import Journal
from engine_adapters.link.entries import NAME_SUFFIX, Entries, Entry
from engine_adapters.link.entry import EntryTitle
from engine_adapters.link.errors import ExpiredError, LinkError, LostEntryError, QuotaError
from engine_adapters.link.quota import EntryQuota
from kvstored_client import SequenceInfo
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from tests.engine_adapters.link.clock import MODEL


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


def test_what_was_met_is_found_without_a_look_at_all_names(
    client: MemoryClient, store: MemoryStore, entries: Entries
) -> None:
    """*Bug:* each of these listed all sequences of the namespace."""
    first, second = entries.add([1, 2]), entries.add([3])
    store.call_counts.clear()
    assert entries.find([1, 2]) == first
    assert entries.look_up([[3], [1, 2], [3]]) == {(3,): second, (1, 2): first}
    assert entries.get(second.entry_id) == second
    assert not store.call_counts[CallName.SEQUENCE_LIST]
    assert entries.look_up([[4], [5], [3]]) == {(4,): None, (5,): None, (3,): second}
    assert store.call_counts[CallName.SEQUENCE_LIST] == 1
    # Somebody else may have ended it, and made it again.
    other = Entries(client, MODEL)
    assert other.expire(first.entry_id)
    again = other.add([1, 2])
    assert entries.find([1, 2]) == again != first


def test_ids_are_random(store: MemoryStore) -> None:
    """Neither the tokens nor the namespace tell the next id."""
    found: list[str] = []
    for salt in ("", "one", "two"):
        with MemoryClient(store, salt=salt) as client:
            found += [Entries(client, MODEL).add([1]).entry_id for _ in range(10)]
    assert len(set(found)) == 30
    assert all(re.fullmatch("cc-[0-9a-f]{24}", entry_id) for entry_id in found)
    # No byte of an id is the same in all of them.
    for place in range(3, 27, 2):
        assert len({entry_id[place : place + 2] for entry_id in found}) > 1


def test_other_namespaces_and_models_see_nothing(
    client: MemoryClient, store: MemoryStore, entries: Entries
) -> None:
    entry = entries.add([1])
    with MemoryClient(store, salt="another") as other:
        for strange in (Entries(other, MODEL), Entries(client, "another model")):
            assert strange.find([1]) is None
            assert strange.list() == []
            with pytest.raises(ExpiredError):
                strange.get(entry.entry_id)
        assert not Entries(other, MODEL).expire(entry.entry_id)
    assert entries.get(entry.entry_id) == entry


def test_names_without_a_tag_are_told_by_their_digest(
    client: MemoryClient, store: MemoryStore, entries: Entries
) -> None:
    entry = entries.add([1])
    (name,) = (one.removesuffix(NAME_SUFFIX) for one in client.sequences.list())
    title = EntryTitle.of_name(name)
    assert title is not None
    journal = Journal(client, MODEL, kind="context cache", suffix=NAME_SUFFIX)
    words = journal.open(name)
    earlier = str(title._replace(token_count=None, tag=None))
    journal.append(earlier, journal.open(earlier), words)
    journal.delete(name)
    with MemoryClient(store, salt="another") as other:
        assert not Entries(other, MODEL).expire(entry.entry_id)
        assert Entries(other, MODEL).list() == []
    assert entries.get(entry.entry_id) == entry
    assert entries.expire(entry.entry_id)
    assert entries.list() == []


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
    entry, stays = entries.add([1]), entries.add([2])
    (key, *_), *_ = [one.keys or [one.tail_key] for one in sequences_of(client, entry)]
    store.chunks.pop(key)
    with pytest.raises(LostEntryError, match="generate_context_cache from the same") as caught:
        entries.get(entry.entry_id)
    assert caught.value.entry_id == entry.entry_id
    assert entries.list() == [stays]
    # Who has the tokens makes it again, and the id is the same.
    made = entries.look_up([[1], [2], [3]], ttl_s=5)
    assert made[(1,)] == entries.get(entry.entry_id)
    assert entries.get(entry.entry_id).expires_s == 1005
    assert made[(2,)] == stays
    assert made[(3,)] is None


def sequences_of(client: MemoryClient, entry: Entry) -> list[SequenceInfo]:
    names = [name for name in client.sequences.list() if name.startswith(entry.entry_id)]
    return [info for name in names if (info := client.sequences.get(name)) is not None]


def test_many_chunks_take_one_look_at_the_names(
    entries: Entries, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [entries.add([number]) for number in range(3)]
    look = Mock(side_effect=client.sequences.list)
    monkeypatch.setattr(client.sequences, "list", look)
    found = entries.look_up([[number] for number in range(6)])
    assert [found[(number,)] for number in range(6)] == [*made, None, None, None]
    assert look.call_count == 1
    # What is known by its id needs none.
    assert [entries.get(entry.entry_id) for entry in made] == made
    assert look.call_count == 1


def test_names_from_before_they_had_a_length_are_read(
    client: MemoryClient, entries: Entries
) -> None:
    entry = entries.add([4, 5])
    (title,) = entries._titles().values()
    entries.expire(entry.entry_id)
    journal = Journal(client, MODEL, kind="context cache", suffix=NAME_SUFFIX)
    name = str(title._replace(token_count=None, tag=None))
    assert name.count(".") == 1
    journal.append(name, journal.open(name), [1, 1000, 2, 4, 5, 0])
    assert entries.get(entry.entry_id) == entry
    small = Entries(client, MODEL, quota=EntryQuota(tokens_max=3))
    small.add([1])
    with pytest.raises(QuotaError, match="tokens_max"):
        small.add([1])


def test_a_store_that_is_gone_keeps_nothing(store: MemoryStore, entries: Entries) -> None:
    entry = entries.add([1], ttl_s=5)
    store.kill()
    for call in (lambda: entries.add([2]), lambda: entries.renew(entry)):
        with pytest.raises(LinkError, match="context cache"):
            call()


@pytest.mark.parametrize("call", [CallName.SEQUENCE_GET, CallName.SEQUENCE_LIST])
def test_an_entry_had_expired_where_the_store_did_not_answer(
    client: MemoryClient, store: MemoryStore, entries: Entries, call: CallName
) -> None:
    """*Bug:* so did one that a store was late with, or that went between two calls."""
    entry = entries.add([1])
    store.faults.silent.add(call)
    # Of this process nobody has met the entry: its names are looked at as well.
    other = Entries(client, MODEL)
    with pytest.raises(LinkError, match="did not answer") as failure:
        other.get(entry.entry_id)
    assert not isinstance(failure.value, ExpiredError)
    store.faults.silent.clear()
    assert other.get(entry.entry_id) == entry
