"""Passes of the scrub over a store in this process, and what they found."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from kvstored.tiers.chunks.status import ChunkStatus
from kvstored.tiers.scrub.scrub import Scrub
from kvstored.tiers.scrub.scrub_pace import ScrubLimits
from tests.support.stores import (
    StoreUnderTest,
    forget_dram,
    key,
    put_durable,
)
from tests.support.waiting import wait_until

UNLIMITED = 1 << 50
NUMBERS = [0, 1, 2, 3, 4, 5]


@contextmanager
def scrubbing(
    opened: StoreUnderTest,
    *,
    bytes_per_s: int = UNLIMITED,
    start_delay_s: float = 0.0,
    pass_interval_s: float = 10_000.0,
) -> Iterator[Scrub]:
    """A scrub of a store that was made without one."""
    store = opened.store
    scrub = Scrub(
        store=store._store,
        room=store.put_path._stager._room,
        engine=store._promoter._loader._engine,
        counters=store._promoter._counters,
        limits=ScrubLimits(
            bytes_per_s=bytes_per_s, start_delay_s=start_delay_s, pass_interval_s=pass_interval_s
        ),
    )
    try:
        yield scrub
    finally:
        scrub.close()


def counters(opened: StoreUnderTest) -> dict[str, int]:
    return opened.stats().counters


def one_pass(opened: StoreUnderTest) -> dict[str, int]:
    """Counters after one pass more."""
    passes = counters(opened).get("scrub_passes", 0)
    with scrubbing(opened):
        wait_until(lambda: counters(opened).get("scrub_passes", 0) > passes)
    return counters(opened)


def stored(opened: StoreUnderTest, numbers: list[int]) -> bytes:
    """Chunks that lie on the devices only, which have superblocks; returns the payload."""
    device_set = opened.store._store.device_set
    for device, superblock in zip(opened.devices, device_set.superblocks, strict=True):
        for offset in superblock.copy_offsets:
            device.media[offset : offset + 4096] = np.frombuffer(superblock.encode(), np.uint8)
    payload = opened.fill(len(numbers))
    put_durable(opened, numbers)
    forget_dram(opened, numbers)
    return payload


def place(opened: StoreUnderTest, number: int) -> ChunkStatus:
    (status,), _ = opened.store.inspection.list_chunks(key(number).hex(), 1)
    return status


def flip(opened: StoreUnderTest, number: int, inside: int) -> None:
    """Flips a bit of the byte at ``inside`` of a chunk's extent."""
    status = place(opened, number)
    opened.devices[status.device_index].media[status.offset + inside] ^= 4


def quarantined(opened: StoreUnderTest) -> set[bytes]:
    statuses, _ = opened.store.inspection.list_chunks("", 1000)
    return {status.chunk.key for status in statuses if status.quarantined}


def findings(found: dict[str, int]) -> dict[str, int]:
    """What a scrub counts when something is not sound."""
    return {
        name: count
        for name, count in found.items()
        if name not in ("scrub_passes", "scrub_bytes", "scrub_chunks")
        and (name.startswith("scrub") or name in ("quarantined_chunks", "unconfirmed_chunks"))
    }
