"""Start-up: from the index to the allocator and to the table of the chunks in service.

Invariant: afterwards every extent that the index names, in service or in quarantine,
is used exactly once in the allocator, and what contradicted that is out of the index.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from kvstored.format.geometry import HEADER_BYTES, Extent
from kvstored.format.identity import ChunkId
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.format.superblock import DATA_OFFSET
from kvstored.store.index.failure import IndexDamagedError
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.index.scan import Scanned, scan_chunks
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.chunk_columns import HELD, ChunkColumns
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.claim_block import ClaimBlock
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.slab_census import SlabCensus
from kvstored.store.space.slab_geometry import (
    SlabGeometry,
    place_of,
    positions,
    slab_number,
    slab_numbers,
)
from kvstored_contract.limits import ALIGNMENT_BYTES

DROP_BATCH = 10_000
"""Entries that one transaction drops."""


class RecoverError(ValueError):
    """The index and the device set do not belong together; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a store starts from.

    ``table`` has every chunk in service; its times of use are the stamps of the writes,
    unless a snapshot knew better. ``next_stamp`` is above every stamp in the index.
    ``dropped_count`` counts entries that were damaged, did not fit the devices, or lost
    an extent to a newer entry.
    """

    allocator: Allocator
    table: ChunkTable
    next_stamp: int
    dropped_count: int


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry of the index that says that an extent is in use."""

    chunk: ChunkId
    extent: Extent
    stamp: int
    is_quarantined: bool


class Recovery:
    """Takes the claims of all chunks in any order, then makes the store's start of them.

    Keeps arrays, not objects: millions of claims are usual. Not thread-safe.
    """

    def __init__(self, device_set: DeviceSet) -> None:
        self._device_set = device_set
        self._geometry = geometry_of(device_set)
        self._columns = ChunkColumns()
        self._slabs = SlabCensus(self._geometry)
        self._next_stamp = 1
        self._damaged_keys: list[bytes] = []
        self._lost: list[Claim] = []
        # Claims to slabs whose size class is another one by an earlier claim.
        self._contested: list[Claim] = []

    def add(self, scanned: Scanned) -> None:
        """Takes a part of the chunk table."""
        self._damaged_keys += scanned.damaged_keys
        claims = scanned.claims
        if len(claims) == 0:
            return
        is_stamp = claims.stamps < HELD
        self.reserve_stamps(int(claims.stamps[is_stamp].max(initial=0)))
        places, is_possible = self._geometry.places(
            claims.devices, claims.offsets, claims.byte_counts
        )
        is_possible &= (claims.byte_counts > HEADER_BYTES) & is_stamp
        is_possible &= claims.byte_counts % np.uint64(ALIGNMENT_BYTES) == 0
        if not is_possible.all():
            self._lost += _claims_of(claims.select(~is_possible))
            claims, places = claims.select(is_possible), places[is_possible]
        is_contested = self._slabs.claim_classes(places, claims.byte_counts)
        if is_contested.any():
            self._contested += _claims_of(claims.select(is_contested))
            claims, places = claims.select(~is_contested), places[~is_contested]
        self._columns.append(claims.identities, places, claims.stamps)

    def reserve_stamps(self, last: int) -> None:
        """Makes the next stamp a later one than ``last``."""
        self._next_stamp = max(self._next_stamp, last + 1)

    def finish(self, index: Index) -> Recovered:
        """Settles contradictions and drops from the index what lost.

        Raises RecoverError when the index is not that of the device set or incomplete,
        IndexFailure when it cannot be read or written.
        """
        check_membership(index, self._device_set)
        recovered, lost = self._settled(index)
        _drop(index, self._damaged_keys, lost)
        return recovered

    def finish_agreed(self, index: Index) -> Recovered | None:
        """As ``finish``, but drops nothing: None when anything contradicts the rest."""
        check_membership(index, self._device_set)
        recovered, lost = self._settled(index)
        return None if lost or self._damaged_keys else recovered

    def _settled(self, index: Index) -> tuple[Recovered, list[Claim]]:
        """The start of the store, and the claims that lost."""
        table = ChunkTable(self._geometry, columns=self._columns, slabs=self._slabs)
        quarantined = self._quarantined(index)
        places = _sorted_places(table, quarantined)
        slabs = set(slab_numbers(places[1:][places[1:] == places[:-1]]).tolist())
        slabs.update(slab_numbers(self._places(self._contested)).tolist())
        if slabs:
            quarantined = self._settle(table, slabs, quarantined)
            places = _sorted_places(table, quarantined)
        table.clock = self._next_stamp
        recovered = Recovered(
            allocator=self._allocator(places),
            table=table,
            next_stamp=self._next_stamp,
            dropped_count=len(self._damaged_keys) + len(self._lost),
        )
        return recovered, self._lost

    def _quarantined(self, index: Index) -> dict[int, Claim]:
        """Possible claims of the quarantine by their place; contested ones are put aside."""
        kept = {}
        for chunk, record in index.walks.quarantined():
            claim = Claim(chunk, record.extent, record.stamp, is_quarantined=True)
            if claim.stamp >= HELD:
                self._lost.append(claim)
                continue
            self.reserve_stamps(claim.stamp)
            if extent_problem(self._geometry, claim.extent) is not None:
                self._lost.append(claim)
                continue
            place = self._place_in_class(claim)
            if place is None:
                self._contested.append(claim)
            else:
                kept[place] = claim
        return kept

    def _place_in_class(self, claim: Claim) -> int | None:
        """The place of a possible claim, whose slab then has its size class.

        None when the slab has another one.
        """
        place = self._places([claim])
        class_bytes = np.array([claim.extent.byte_count], np.uint64)
        is_contested = self._slabs.claim_classes(place, class_bytes).any()
        return None if is_contested else int(place[0])

    def _settle(
        self, table: ChunkTable, slabs: set[int], quarantined: dict[int, Claim]
    ) -> dict[int, Claim]:
        """Lets the newest claims to these slabs win; returns the quarantined ones that remain.

        The newer write is the one whose bytes are there; quarantine wins over an equal.
        """
        contested = self._contested
        for slab in slabs:
            for chunk, extent, stamp in table.claims_in_slab(slab):
                contested.append(Claim(chunk, extent, stamp, is_quarantined=False))
                table.remove(chunk)
            self._slabs.forget_class(slab)
        remaining = {
            place: claim for place, claim in quarantined.items() if slab_number(place) not in slabs
        }
        contested += [claim for place, claim in quarantined.items() if place not in remaining]
        numbers = slab_numbers(self._places(contested)).tolist()
        pairs = sorted(zip(numbers, contested, strict=True), key=lambda pair: pair[0])
        for _, group in groupby(pairs, key=lambda pair: pair[0]):
            kept, lost = newest([claim for _, claim in group])
            self._lost += lost
            for claim in kept:
                place = self._place_in_class(claim)
                assert place is not None
                if claim.is_quarantined:
                    remaining[place] = claim
                else:
                    table.insert(claim.chunk, claim.extent, time=claim.stamp)
        return remaining

    def _places(self, claims: list[Claim]) -> NDArray[np.uint64]:
        """Places of claims that are possible; shape [n]."""
        firsts = self._geometry.first_slabs
        return np.array(
            [
                place_of(firsts[claim.extent.device_index] + slab_index, position)
                for claim in claims
                for slab_index, position in (self._geometry.locate(claim.extent),)
            ],
            np.uint64,
        )

    def _allocator(self, places: NDArray[np.uint64]) -> Allocator:
        """An allocator where exactly the extents at sorted ``places`` are used."""
        allocator = allocator_of(self._device_set)
        firsts = np.array(self._geometry.first_slabs)
        slabs, starts = np.unique(slab_numbers(places), return_index=True)
        devices = np.searchsorted(firsts, slabs, side="right") - 1
        ends = np.append(starts, len(places))[1:].tolist()
        for slab, device, start, end in zip(
            slabs.tolist(), devices.tolist(), starts.tolist(), ends, strict=True
        ):
            allocator.occupy_slab(
                device,
                slab - int(firsts[device]),
                self._slabs.class_bytes_of(slab),
                positions(places[start:end]),
            )
        return allocator


def recover(index: Index, device_set: DeviceSet) -> Recovered:
    """Walks the index, fills an allocator from it and drops entries that contradict the rest.

    Raises as ``Recovery.finish``.
    """
    check_membership(index, device_set)
    recovery = Recovery(device_set)
    for scanned in scan_chunks(index.walks):
        recovery.add(scanned)
    return recovery.finish(index)


def check_membership(index: Index, device_set: DeviceSet) -> None:
    """Raises RecoverError unless the index is complete and belongs to the device set."""
    meta = index.meta()
    if meta is None:
        raise RecoverError(f"the index in {index.path} is incomplete; rebuild it")
    if meta.set_id != device_set.set_id:
        raise RecoverError(
            f"the index in {index.path} belongs to device set {meta.set_id.hex()}, but the "
            f"devices to {device_set.set_id.hex()}; name the index of this set, or move this one "
            "away: then it is rebuilt"
        )


def check_age(index: Index, device_set: DeviceSet) -> None:
    """Raises IndexDamagedError when the devices were served since with a newer index.

    What was stored since then is unknown to it, and it takes the extents of that for free.
    """
    meta = index.meta()
    if meta is not None and meta.is_outdated(set_id=device_set.set_id, epoch=device_set.epoch):
        raise IndexDamagedError(
            f"the index in {index.path} is an older copy, of epoch {meta.epoch} where its devices "
            f"are in epoch {device_set.epoch}; a start rebuilds it from them"
        )


def occupy(allocator: Allocator, extent: Extent) -> str | None:
    """Marks an extent of the index as used; returns why not when it cannot be right."""
    problem = extent_problem(allocator.geometry, extent)
    if problem is not None:
        return problem
    try:
        allocator.occupy(extent)
    except ValueError as error:
        return str(error)
    return None


def extent_problem(geometry: SlabGeometry, extent: Extent) -> str | None:
    """Why the devices cannot have an extent; None when they can."""
    if extent.device_index >= len(geometry.slab_counts):
        return f"{extent} is on a device that the set does not have"
    if extent.byte_count <= HEADER_BYTES or extent.byte_count % ALIGNMENT_BYTES:
        return f"{extent} has a length that no layout gives"
    try:
        geometry.locate(extent)
    except ValueError as error:
        return str(error)
    return None


def geometry_of(device_set: DeviceSet) -> SlabGeometry:
    """Where extents can lie on a device set."""
    return SlabGeometry(
        slab_bytes=device_set.slab_bytes,
        slab_counts=tuple(superblock.slab_count for superblock in device_set.superblocks),
        data_offset=DATA_OFFSET,
        header_bytes=SLAB_HEADER_BYTES,
    )


def allocator_of(device_set: DeviceSet) -> Allocator:
    """An allocator for the device set with nothing in use."""
    geometry = geometry_of(device_set)
    return Allocator(
        slab_bytes=geometry.slab_bytes,
        slab_counts=geometry.slab_counts,
        data_offset=geometry.data_offset,
        slab_header_bytes=geometry.header_bytes,
    )


def newest(claims: Iterable[Claim]) -> tuple[list[Claim], list[Claim]]:
    """Of claims to one slab those that hold beside all newer ones, and the others."""
    kept: list[Claim] = []
    lost: list[Claim] = []
    taken: set[int] = set()
    for claim in sorted(claims, key=lambda claim: (claim.stamp, claim.is_quarantined))[::-1]:
        is_of_class = not kept or kept[0].extent.byte_count == claim.extent.byte_count
        if is_of_class and claim.extent.offset not in taken:
            taken.add(claim.extent.offset)
            kept.append(claim)
        else:
            lost.append(claim)
    return kept, lost


def _claims_of(block: ClaimBlock) -> Iterator[Claim]:
    """The few claims of a block that are looked at one by one."""
    for index in range(len(block)):
        yield Claim(
            chunk=ChunkId.decode(block.identities[index].tobytes()),
            extent=Extent(
                int(block.devices[index]), int(block.offsets[index]), int(block.byte_counts[index])
            ),
            stamp=int(block.stamps[index]),
            is_quarantined=False,
        )


def _sorted_places(table: ChunkTable, quarantined: dict[int, Claim]) -> NDArray[np.uint64]:
    places = np.concatenate([table.columns.places(), np.fromiter(quarantined, np.uint64)])
    places.sort()
    return places


def _drop(index: Index, damaged_keys: list[bytes], lost: list[Claim]) -> None:
    deletes = [ChunkId.decode(key) for key in damaged_keys]
    deletes += [claim.chunk for claim in lost if not claim.is_quarantined]
    releases = [claim.extent for claim in lost if claim.is_quarantined]
    for start in range(0, max(len(deletes), len(releases)), DROP_BATCH):
        batch = slice(start, start + DROP_BATCH)
        index.apply(IndexChange(deletes=tuple(deletes[batch]), releases=tuple(releases[batch])))
