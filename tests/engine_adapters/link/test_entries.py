"""Entries in a store in memory."""

import re
from unittest.mock import Mock

import pytest

from engine_adapters.conversation.journal import Journal
from engine_adapters.link.entries import NAME_SUFFIX, Entries, Entry
from engine_adapters.link.entry import EntryTitle
from engine_adapters.link.errors import ExpiredError, LinkError, LostEntryError, QuotaError
from engine_adapters.link.quota import EntryQuota
from kvstored_client import Reason, SequenceInfo
from kvstored_client.testing import CallName, MemoryClient, MemoryStore

MODEL = "a model"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.7

    def __call__(self) -> float:
        return self.now_s


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


def test_an_entry_that_another_process_ends_is_over(
    client: MemoryClient, entries: Entries, clock: Clock
) -> None:
    entry = entries.add([1], ttl_s=5)
    assert Entries(client, MODEL, clock=clock).expire(entry.entry_id)
    with pytest.raises(ExpiredError):
        entries.get(entry.entry_id)
    later = Entries(client, MODEL, clock=clock)
    with pytest.raises(ExpiredError):
        later.renew(entry, ttl_s=50)
    # And one that another process makes is there.
    other = later.add([2])
    assert entries.get(other.entry_id) == other


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


@pytest.mark.parametrize(
    ("quota", "limit_name"),
    [(EntryQuota(entries_max=2), "entries_max"), (EntryQuota(tokens_max=5), "tokens_max")],
)
def test_a_namespace_has_a_quota(
    client: MemoryClient, clock: Clock, quota: EntryQuota, limit_name: str
) -> None:
    entries = Entries(client, MODEL, quota=quota, clock=clock)
    kept = entries.add([1, 2])
    entries.add([3, 4], ttl_s=10)
    for call in (lambda: entries.add([5, 6]), lambda: entries.look_up([[5, 6]])):
        with pytest.raises(QuotaError, match=limit_name) as caught:
            call()
        assert (caught.value.limit_name, caught.value.limit) == (
            limit_name,
            2 + 3 * (limit_name != "entries_max"),
        )
    # What is there already needs no room, and what has expired takes none.
    assert entries.look_up([[1, 2]])[(1, 2)] == kept
    clock.now_s += 10
    assert entries.look_up([[5, 6]]) == {(5, 6): None}


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


def test_an_entry_was_ended_where_the_store_did_not_answer(
    store: MemoryStore, entries: Entries
) -> None:
    """*Bug:* "there was none" was the answer, and the entry went on."""
    entry = entries.add([1])
    store.faults.silent.add(CallName.SEQUENCE_DELETE)
    with pytest.raises(LinkError, match="did not answer"):
        entries.expire(entry.entry_id)
    store.faults.silent.clear()
    assert entries.get(entry.entry_id) == entry
    assert entries.expire(entry.entry_id)


def test_a_renewal_made_a_dead_id(
    client: MemoryClient, entries: Entries, store: MemoryStore
) -> None:
    """Bug: of an entry that had just ended it made a sequence, which said only when it is over."""
    entry = entries.add([1], ttl_s=5)
    assert Entries(client, MODEL).expire(entry.entry_id)
    with pytest.raises(ExpiredError):
        entries.renew(entry, ttl_s=50)
    assert not store.sequences


@pytest.mark.parametrize("is_ended", [True, False], ids=["ended", "expired"])
def test_what_ends_before_it_is_kept_is_made_once_more(
    client: MemoryClient, clock: Clock, is_ended: bool
) -> None:
    entries = Entries(client, MODEL, clock=clock, quota=EntryQuota(entries_max=1))
    entry = entries.add([1], ttl_s=5)
    found = entries.look_up([[1]])[(1,)]
    assert found == entry
    if is_ended:
        assert Entries(client, MODEL, clock=clock).expire(entry.entry_id)
    else:
        clock.now_s += 5
    kept = entries.keep(found, [1], ttl_s=50)
    assert kept.entry_id != entry.entry_id
    assert entries.list() == [kept]
    assert len(client.sequences.list()) == 1
    assert entries.keep(kept, [1], ttl_s=60).entry_id == kept.entry_id
    with pytest.raises(ExpiredError):
        entries.get(entry.entry_id)


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "not yet deleted"])
def test_an_entry_that_could_not_be_written_kept_its_name(
    client: MemoryClient, store: MemoryStore, clock: Clock, is_deleted: bool
) -> None:
    """Bug: it was in no list, so nobody could end it, and it took a place of the quota for good."""
    entries = Entries(client, MODEL, clock=clock, quota=EntryQuota(entries_max=1))
    store.faults.append_rejection = lambda *_: Reason.DRAM_FULL
    if not is_deleted:
        store.faults.silent.add(CallName.SEQUENCE_DELETE)
    with pytest.raises(LinkError, match="DRAM_FULL"):
        entries.add([1])
    assert bool(store.sequences) is not is_deleted
    store.faults.append_rejection = lambda *_: None
    store.faults.silent.clear()
    entry = entries.add([2])
    assert entries.list() == [entry]
    assert len(store.sequences) == 1


def test_an_entry_that_was_written_after_all_was_deleted(entries: Entries) -> None:
    """Bug: its writer had no answer in time, and a client that asked again has its id."""
    entry = entries.add([1])
    entries._unfinished.add(entries._known[entry.entry_id])
    other = entries.add([2])
    assert sorted(entries.list(), key=lambda one: one.token_ids) == [entry, other]
    assert not entries._unfinished


def test_a_renewal_took_time_from_an_entry_that_another_process_had_renewed(
    client: MemoryClient, entries: Entries, clock: Clock
) -> None:
    """Bug: what was known of it from before decided."""
    entry = entries.add([1], ttl_s=10)
    Entries(client, MODEL, clock=clock).renew(entry)
    assert entries.renew(entry, ttl_s=50).expires_s is None
    assert entries.get(entry.entry_id).expires_s is None


def test_an_entry_that_cannot_be_mended_ends(
    client: MemoryClient, store: MemoryStore, entries: Entries
) -> None:
    entry = entries.add([1])
    store.chunks.clear()
    store.faults.append_rejection = lambda *_: Reason.DRAM_FULL
    with pytest.raises(LinkError, match="DRAM_FULL"):
        entries.look_up([[1]])
    assert not store.sequences
    with pytest.raises(ExpiredError):
        entries.get(entry.entry_id)


def test_an_entry_whose_writer_was_killed_took_a_place_for_good(
    client: MemoryClient, clock: Clock
) -> None:
    """Bug: so did all that were left so, until nobody could make an entry any more."""
    writer = Entries(client, MODEL, clock=clock)
    journal = Journal(client, MODEL, kind="context cache", suffix=NAME_SUFFIX)
    unfinished = str(writer._title("cc-" + 24 * "0", [1, 2], ()))
    journal.open(unfinished)
    entries = Entries(client, MODEL, clock=clock, quota=EntryQuota(entries_max=1))
    entry = entries.add([3])
    assert entries.list() == [entry]
    with pytest.raises(QuotaError, match="would have 2 entries"):
        entries.add([4])
    # It may be one that somebody writes this very moment: then that goes on.
    assert journal.read(unfinished) == ()


def test_expired_entries_of_another_model_took_places_for_good(
    client: MemoryClient, store: MemoryStore, clock: Clock
) -> None:
    """Bug: only a process with that model could tell, and perhaps there is none any more."""
    theirs = Entries(client, "another model", clock=clock)
    old = [theirs.add([number], ttl_s=5) for number in range(2)]
    clock.now_s += 5
    quota = EntryQuota(entries_max=2)
    entries = Entries(client, MODEL, clock=clock, quota=quota)
    made = [entries.add([number]) for number in range(2)]
    assert sorted(entry.entry_id for entry in entries.list()) == sorted(
        entry.entry_id for entry in made
    )
    with pytest.raises(QuotaError, match="would have 3 entries"):
        entries.add([2])
    # Their own model may have them, for all that is known here.
    assert {entry.entry_id for entry in old} <= {
        name.partition(".")[0] for name in client.sequences.list()
    }
    # And each is looked at once, not for every new entry.
    assert entries.expire(made[0].entry_id)
    store.call_counts.clear()
    entries.add([2])
    assert not store.call_counts[CallName.READ]
