"""Start-up: from the index to the allocator and to the order in which chunks were written.

Invariant: afterwards every extent that the index names, in service or in quarantine,
is used exactly once in the allocator, and what contradicted that is out of the index.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kvstored.format.extent import Extent
from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.format.superblock import DATA_OFFSET
from kvstored.store.allocator import Allocator
from kvstored.store.device_set import DeviceSet
from kvstored.store.index import Index, IndexChange
from kvstored_contract.limits import ALIGNMENT_BYTES

DROP_BATCH = 10_000
"""Entries that one transaction drops."""


class RecoverError(ValueError):
    """The index and the device set do not belong together; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a store starts from.

    ``chunks`` names every chunk in service with its extent, oldest write first.
    ``next_stamp`` is above every stamp in the index. ``dropped_count`` counts entries
    that were damaged, did not fit the devices, or lost an extent to a newer entry.
    """

    allocator: Allocator
    chunks: list[tuple[ChunkId, Extent]]
    next_stamp: int
    dropped_count: int


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry of the index that says that an extent is in use."""

    chunk: ChunkId
    extent: Extent
    stamp: int
    is_quarantined: bool


def recover(index: Index, device_set: DeviceSet) -> Recovered:
    """Fills an allocator from the index and drops entries that contradict the rest.

    Raises RecoverError when the index is not that of ``device_set`` or incomplete,
    IndexFailure when it cannot be read or written.
    """
    check_membership(index, device_set)
    allocator = allocator_of(device_set)
    damaged: list[ChunkId] = []
    claims = list(_claims(index, damaged))
    # The newer write is the one whose bytes are there; quarantine wins over an equal.
    claims.sort(key=lambda claim: (claim.stamp, claim.is_quarantined))
    kept: list[Claim] = []
    lost: list[Claim] = []
    for claim in reversed(claims):
        problem = restore(allocator, device_set, claim.extent)
        (kept if problem is None else lost).append(claim)
    _drop(index, damaged, lost)
    return Recovered(
        allocator=allocator,
        chunks=[
            (claim.chunk, claim.extent) for claim in reversed(kept) if not claim.is_quarantined
        ],
        next_stamp=claims[-1].stamp + 1 if claims else 1,
        dropped_count=len(damaged) + len(lost),
    )


def check_membership(index: Index, device_set: DeviceSet) -> None:
    """Raises RecoverError unless the index is complete and belongs to the device set."""
    meta = index.meta()
    if meta is None:
        raise RecoverError(f"the index in {index.path} is incomplete; rebuild it")
    if meta.set_id != device_set.set_id:
        raise RecoverError(
            f"the index in {index.path} belongs to device set {meta.set_id.hex()}, but the "
            f"devices to {device_set.set_id.hex()}; name the index of this set or rebuild it"
        )


def restore(allocator: Allocator, device_set: DeviceSet, extent: Extent) -> str | None:
    """Marks an extent of the index as used; returns why not when it cannot be right."""
    if extent.device_index >= len(device_set.devices):
        return f"{extent} is on a device that the set does not have"
    if extent.byte_count <= HEADER_BYTES or extent.byte_count % ALIGNMENT_BYTES:
        return f"{extent} has a length that no layout gives"
    try:
        allocator.restore(extent)
    except ValueError as error:
        return str(error)
    return None


def allocator_of(device_set: DeviceSet) -> Allocator:
    """An allocator for the device set with nothing in use."""
    return Allocator(
        slab_bytes=device_set.slab_bytes,
        slab_counts=[superblock.slab_count for superblock in device_set.superblocks],
        data_offset=DATA_OFFSET,
        slab_header_bytes=SLAB_HEADER_BYTES,
    )


def _claims(index: Index, damaged: list[ChunkId]) -> Iterator[Claim]:
    """All claims of the index; chunks with a damaged record are added to ``damaged``."""
    for chunk, record in index.quarantined():
        yield Claim(chunk, record.extent, record.stamp, is_quarantined=True)
    for chunk, entry in index.entries():
        if entry is None:
            damaged.append(chunk)
        else:
            yield Claim(chunk, entry.extent, entry.stamp, is_quarantined=False)


def _drop(index: Index, damaged: list[ChunkId], lost: list[Claim]) -> None:
    deletes = damaged + [claim.chunk for claim in lost if not claim.is_quarantined]
    releases = [claim.extent for claim in lost if claim.is_quarantined]
    for start in range(0, max(len(deletes), len(releases)), DROP_BATCH):
        batch = slice(start, start + DROP_BATCH)
        index.apply(IndexChange(deletes=tuple(deletes[batch]), releases=tuple(releases[batch])))
