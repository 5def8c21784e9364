"""Entries that end, by themselves or by somebody, and those that are renewed."""

import pytest

from engine_adapters.link.entries import Entries
from engine_adapters.link.errors import ExpiredError, LinkError
from engine_adapters.link.quota import EntryQuota
from kvstored_client import Reason
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from tests.engine_adapters.link.clock import MODEL, Clock


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
