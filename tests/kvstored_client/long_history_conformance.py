"""Histories of more chunks than one call may name, of every store."""

import pytest

from kvstored_client import Client, RequestInvalidError
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX, KEY_BYTES
from tests.kvstored_client.chunk_calls import store
from tests.support.rows import MIXED


class LongHistoryConformance:
    """The client makes several calls, of which its user knows nothing."""

    def test_more_keys_than_a_call_may_name_were_a_miss_of_all(self, client: Client) -> None:
        keys, _ = store(client)
        unknown = [number.to_bytes(KEY_BYTES, "big") for number in range(CHUNKS_PER_CALL_MAX)]
        held = client.admin.stats().lease_count
        lease = client.pin(MIXED, [keys[0], *unknown, keys[1]], lease_ms=60_000)
        assert lease is not None
        assert lease.chunk_count == 2
        assert [place for place, is_there in enumerate(lease.is_pinned) if is_there] == [
            0,
            len(unknown) + 1,
        ]
        assert client.admin.stats().lease_count == held + 2
        assert lease.release()
        assert client.admin.stats().lease_count == held
        assert client.pin(MIXED, [*unknown, bytes(KEY_BYTES)], lease_ms=60_000) is None

    def test_a_sequence_of_more_keys_than_a_call_may_name(self, client: Client, name: str) -> None:
        keys = [number.to_bytes(KEY_BYTES, "big") for number in range(CHUNKS_PER_CALL_MAX + 2)]
        info = client.sequences.create(name, MIXED, keys=keys)
        assert info is not None
        assert info.keys == tuple(keys)
        with pytest.raises(RequestInvalidError):
            client.sequences.create(f"{name} short", MIXED, keys=[*keys[:-1], b"short"])
        assert client.sequences.get(f"{name} short") is None
        client.sequences.delete(name)
