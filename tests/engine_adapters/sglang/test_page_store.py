"""Pages go to the store and come back, over a store in memory."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine_adapters.sglang.page_store import PageStore
from kvstored_client import Client, Reason
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from tests.engine_adapters.breakers import alarmed, calm
from tests.engine_adapters.sglang.formats import FRAGMENTS, make_format

MIB = 1024 * 1024
PAGES = 9
NAMES = [f"{number:064x}" for number in range(PAGES)]


class Pool:
    """Fragments of pages in memory of their own: all keys, then all values."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.parts: list[NDArray[np.uint8]] = [
            generator.integers(0, 256, (PAGES, size), np.uint8) for size in FRAGMENTS
        ]

    def addresses(self) -> list[list[int]]:
        return [
            [part.ctypes.data + page * part.shape[1] for part in self.parts]
            for page in range(PAGES)
        ]

    def equal_pages(self, other: "Pool") -> list[bool]:
        return [
            all(
                np.array_equal(a[page], b[page])
                for a, b in zip(self.parts, other.parts, strict=True)
            )
            for page in range(PAGES)
        ]


WRITTEN = Pool(1)


@pytest.fixture
def pages(store: MemoryStore) -> PageStore:
    return pages_of(MemoryClient(store, arena_bytes=MIB))


def pages_of(client: Client, **changes: Any) -> PageStore:
    return PageStore(client=client, format=make_format(**changes), breaker=calm())


def loaded(pages: PageStore, count: int) -> None:
    """So many leading pages come, and the memory of the others is as before."""
    target, before = Pool(2), Pool(2)
    assert pages.load(NAMES, target.addresses()) == [True] * count + [False] * (PAGES - count)
    assert target.equal_pages(WRITTEN) == [True] * count + [False] * (PAGES - count)
    assert target.equal_pages(before)[count:] == [True] * (PAGES - count)


def test_pages_of_old_weights_were_there_after_a_clear(pages: PageStore) -> None:
    """Bug: SGLang's own class clears nothing, and says that it did."""
    pages.store(NAMES, WRITTEN.addresses())
    first = pages.cleared()
    assert first.count(NAMES) == 0
    loaded(first, 0)
    assert first.store(NAMES[:2], WRITTEN.addresses()) == [True, True]
    assert (first.count(NAMES), first.cleared().count(NAMES), pages.count(NAMES)) == (2, 0, PAGES)


def test_what_was_stored_is_loaded(pages: PageStore) -> None:
    assert pages.count(NAMES) == 0
    assert pages.store(NAMES, WRITTEN.addresses()) == [True] * PAGES
    assert pages.count([*NAMES, "none"]) == PAGES
    loaded(pages, PAGES)


def test_a_page_continues_the_one_before(pages: PageStore, store: MemoryStore) -> None:
    pages.store(NAMES[:4], WRITTEN.addresses()[:4])
    pages.store(NAMES[4:], WRITTEN.addresses()[4:], parent=NAMES[3])
    keys = pages.format.keys_of(NAMES, namespace=pages.client.namespace)
    puts = [request for request in store.requests if type(request).__name__ == "PutRequest"]
    parents = [chunk.parent_key for put in puts for chunk in put.chunks]  # type: ignore[attr-defined]
    assert parents == [b"", *keys[:-1]]


def test_pages_that_do_not_fit_at_once_go_in_parts(store: MemoryStore) -> None:
    client = MemoryClient(store, room_bytes=4 * 2 * 2 * 4096)
    pages = pages_of(client)
    assert pages.store(NAMES, WRITTEN.addresses()) == [True] * PAGES
    assert store.call_counts[CallName.PUT] == 5
    loaded(pages, PAGES)


def test_look_ups_waited_one_after_the_other_for_a_daemon_that_hangs(
    pages: PageStore, store: MemoryStore
) -> None:
    """Bug: each waited for as long as a call may take."""
    pages.store(NAMES, WRITTEN.addresses())
    hung = replace(pages, breaker=alarmed())
    assert hung.count(NAMES) == PAGES
    assert [hung.cleared().count(NAMES), hung.count(NAMES)] == [0, 0]
    assert store.call_counts[CallName.MATCH] == 1


def test_another_format_is_a_miss(pages: PageStore) -> None:
    pages.store(NAMES, WRITTEN.addresses())
    for change in ({"weights": "revision 2"}, {"dtype": "float16"}):
        loaded(pages_of(pages.client, **change), 0)


def test_a_lost_slice_ends_the_prefix(pages: PageStore, store: MemoryStore) -> None:
    pages.store(NAMES, WRITTEN.addresses())
    (lost,) = pages.format.keys_of(NAMES[5:6], namespace=pages.client.namespace)
    store.faults.lost_slices.add((lost, 1))
    loaded(pages, 5)


@pytest.mark.parametrize("call", [CallName.PUT, CallName.READ, CallName.MATCH, CallName.REGISTER])
def test_a_store_that_refuses_is_a_miss(
    call: CallName, pages: PageStore, store: MemoryStore
) -> None:
    if call is not CallName.REGISTER:
        pages.store(NAMES[:5], WRITTEN.addresses()[:5])
    store.faults.refusals[call] = Reason.INTERNAL
    if call in (CallName.PUT, CallName.REGISTER):
        assert pages.store(NAMES, WRITTEN.addresses()) == [False] * PAGES
    if call in (CallName.READ, CallName.REGISTER):
        loaded(pages, 0)
    if call in (CallName.MATCH, CallName.REGISTER):
        assert pages.count(NAMES) == 0


def test_no_store_is_a_miss_until_it_is_back(pages: PageStore, store: MemoryStore) -> None:
    pages.store(NAMES, WRITTEN.addresses())
    store.kill()
    assert pages.count(NAMES) == 0
    assert pages.store(NAMES, WRITTEN.addresses()) == [False] * PAGES
    loaded(pages, 0)
    store.start()
    loaded(pages, PAGES)


def test_a_full_arena_is_a_miss(pages: PageStore, store: MemoryStore) -> None:
    pages.store(NAMES, WRITTEN.addresses())
    store.faults.arena_is_full = True
    loaded(pages, 0)
    assert pages.store(["new"], WRITTEN.addresses()[:1]) == [False]


def test_a_put_that_is_refused_ends_the_call(pages: PageStore, store: MemoryStore) -> None:
    """SGLang counts a batch by its prefix: pages behind a hole would be of no use."""
    store.faults.put_rejection = lambda _, place: Reason.DRAM_FULL if place == 3 else None
    assert pages.store(NAMES, WRITTEN.addresses())[:4] == [True, True, True, False]
    loaded(pages, 3)
