"""How many entries a namespace has, and what takes a place of its quota."""

import pytest

from engine_adapters.conversation.journal import Journal
from engine_adapters.link.entries import NAME_SUFFIX, Entries
from engine_adapters.link.errors import LinkError, QuotaError
from engine_adapters.link.quota import EntryQuota
from kvstored_client import Reason
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from tests.engine_adapters.link.clock import MODEL, Clock


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
