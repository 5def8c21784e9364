"""Leases of every store: the same tests for a real daemon and for one in memory."""

from collections.abc import Callable

import pytest

from kvstored_client import Client, DaemonAbsentError
from tests.kvstored_client.chunk_calls import CHUNKS, Connect, store
from tests.support.rows import MIXED
from tests.support.waiting import wait_until


class LeaseConformance:
    """What is pinned stays, until it is released, its time is up, or its session has ended."""

    def test_a_match_with_a_lease_pins(self, client: Client) -> None:
        keys, _ = store(client)
        found = client.match(MIXED, [*keys[:2], bytes(32)], lease_ms=60_000)
        assert found.lease is not None
        assert found.lease.is_pinned == (True, True, False)
        assert found.lease.release()
        assert not found.lease.release()
        assert client.match(MIXED, [bytes(32)], lease_ms=60_000).lease is None

    def test_a_pin_takes_what_is_stored(self, client: Client) -> None:
        keys, _ = store(client)
        assert client.pin(MIXED, [bytes(32)], lease_ms=60_000) is None
        lease = client.pin(MIXED, [bytes(32), *keys], lease_ms=60_000)
        assert lease is not None
        assert lease.chunk_count == CHUNKS
        assert lease.is_pinned == (False, *(True,) * CHUNKS)
        with lease:
            # A lease keeps chunks from eviction, and not from who deletes them.
            assert client.delete(keys[:1]) == 1
            assert client.match(MIXED, keys).chunk_count == 0

    def test_a_lease_ends_by_time(self, client: Client, pause: Callable[[float], None]) -> None:
        keys, _ = store(client)
        lease = client.pin(MIXED, keys, lease_ms=1)
        assert lease is not None
        pause(1.5)
        assert not lease.release()

    def test_a_lease_ends_with_its_session(self, client: Client, connect: Connect) -> None:
        keys, _ = store(client)
        lease = client.pin(MIXED, keys, lease_ms=60_000)
        assert lease is not None
        with connect() as other:
            held = other.admin.stats().lease_count
            assert held >= 1
            client.close()
            wait_until(lambda: other.admin.stats().lease_count == held - 1)
        with pytest.raises(DaemonAbsentError):
            lease.release()
