"""Leases: every pin comes back exactly once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.identity import ChunkId
from kvstored.server.held.leases import Lease, LeaseTable


def lease(number: int, expires_at: float) -> Lease:
    chunk = ChunkId(bytes(16), number.to_bytes(32, "big"))
    return Lease(chunks=(chunk,), expires_at=expires_at)


def test_release_happens_once() -> None:
    table = LeaseTable()
    lease_id = table.add(lease(1, 10))
    assert lease_id != 0
    assert table.release(lease_id) == lease(1, 10)
    assert table.release(lease_id) is None
    assert table.expire(11) == ()


def test_expiry_takes_only_what_is_due() -> None:
    table = LeaseTable()
    table.add(lease(1, 10))
    later = table.add(lease(2, 20))
    assert table.expire(9.9) == ()
    assert table.expire(10) == (lease(1, 10),)
    assert len(table) == 1
    assert table.release(later) == lease(2, 20)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("release"), st.integers(1, 30)),
        st.tuples(st.just("expire"), st.integers(0, 20)),
    )
)


@given(STEPS)
def test_every_chunk_is_returned_exactly_once(steps: list[tuple[str, int]]) -> None:
    table = LeaseTable()
    given_out: Counter[ChunkId] = Counter()
    returned: Counter[ChunkId] = Counter()
    for number, (step, value) in enumerate(steps):
        if step == "add":
            table.add(lease(number, value))
            given_out.update(lease(number, value).chunks)
        elif step == "release":
            released = table.release(value)
            returned.update(() if released is None else released.chunks)
        else:
            returned.update(chunk for each in table.expire(value) for chunk in each.chunks)
    returned.update(chunk for each in table.clear() for chunk in each.chunks)
    assert returned == given_out
    assert len(table) == 0
