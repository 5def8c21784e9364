from kvstored.format.identity import ChunkId
from kvstored.server.held.leases import Lease
from kvstored.server.operators.kept_pins import PINNED_CHUNKS_MAX, PINS_MAX, KeptPins


def lease(chunk_count: int, expires_at: float) -> Lease:
    chunks = tuple(ChunkId(b"n" * 16, bytes([number]) * 32) for number in range(chunk_count))
    return Lease(chunks=chunks, expires_at=expires_at)


def test_each_pin_ends_once() -> None:
    pins = KeptPins()
    short, long, other = lease(2, 10.0), lease(3, 20.0), lease(1, 30.0)
    first = pins.add(short, namespace="a", label="one")
    second = pins.add(long, namespace="b", label="two")
    third = pins.add(other, namespace="b", label="three")
    assert (len(pins), pins.chunk_count) == (3, 6)
    assert [(pin.pin_id, pin.namespace, pin.label) for pin in pins.all()] == [
        (first, "a", "one"),
        (second, "b", "two"),
        (third, "b", "three"),
    ]
    assert pins.expire(9.9) == ()
    assert pins.expire(10.0) == (short,)
    assert pins.end(first) == ()
    assert pins.end(second) == (long,)
    assert pins.clear() == (other,)
    assert (pins.clear(), len(pins), pins.chunk_count) == ((), 0, 0)


def test_an_id_is_never_used_again() -> None:
    pins = KeptPins()
    first = pins.add(lease(1, 1.0), namespace="a", label="")
    pins.end(first)
    assert pins.add(lease(1, 1.0), namespace="a", label="") > first > 0


def test_room_is_bounded() -> None:
    pins = KeptPins()
    assert pins.has_room(PINNED_CHUNKS_MAX)
    for _ in range(PINS_MAX):
        assert pins.has_room(PINNED_CHUNKS_MAX - pins.chunk_count)
        assert not pins.has_room(PINNED_CHUNKS_MAX - pins.chunk_count + 1)
        pins.add(lease(1, 1.0), namespace="a", label="")
    assert not pins.has_room(0)
