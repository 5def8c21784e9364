"""A store over devices in memory that is opened again and again from what is left of it."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Self

import numpy as np

from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES, Superblock
from kvstored.io.device import Device
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.monitored import MonitoredDevice
from kvstored.io.thread_engine import ThreadEngine
from kvstored.store.index.index import Index
from kvstored.store.index.service import close_cleanly
from kvstored.store.read.plan import PlanLimits
from kvstored.store.read.reader import ReaderLimits
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.superblock_copies import read_superblock, write_superblock
from kvstored.store.start.index_open import begin_epoch, open_recovered
from kvstored.store.start.rebuild import rebuild_index
from kvstored.store.start.recover import Recovered, recover
from kvstored.store.write.committer import CommitLimits
from kvstored.tiers.tiered_store import RecoveredStore, TieredStore, TierLimits
from tests.faults.media.served import ARENA_BYTES, MIB, CountingEngine, ServedStore
from tests.faults.media.watch import no_stray_exceptions

KIB = 1024
SLAB_BYTES = 256 * KIB
MAP_BYTES = 16 * MIB
RUN_BYTES_MAX = 16 * KIB
"""Short runs, so that a chunk is several transfers."""
SET_ID = b"s" * 16

Wrap = Callable[[Device], Device]


class Start(Enum):
    """How a store comes up."""

    WALK = "walk"
    """The index as it is is walked through in this process, as after a crash."""
    REBUILD = "rebuild"
    """The index is lost: it is made again from the headers on the devices."""
    SERVICE = "service"
    """As the daemon does it: by the snapshot of a clean stop, or by a child's walk."""


def plain(device: Device) -> Device:
    """No fault."""
    return device


@dataclass(slots=True)
class Lab:
    """Devices in memory and the folder of an index; at most one store is open at a time."""

    folder: Path
    devices: tuple[MemoryDevice, ...]
    dram_bytes: int = MIB
    index_count: int = field(default=1)

    @property
    def index_path(self) -> Path:
        """The index that the next start opens."""
        return self.folder / f"index-{self.index_count}"

    @classmethod
    def format(cls, folder: Path, *, device_count: int = 2, slab_count: int = 2) -> Self:
        """Formats devices and an empty index."""
        capacity_bytes = DATA_OFFSET + slab_count * SLAB_BYTES + SUPERBLOCK_BYTES
        lab = cls(
            folder,
            tuple(MemoryDevice(f"memory-{index}", capacity_bytes) for index in range(device_count)),
        )
        for index, device in enumerate(lab.devices):
            superblock = Superblock(
                set_id=SET_ID,
                device_id=bytes([index + 1]) * 16,
                device_index=index,
                device_count=device_count,
                capacity_bytes=capacity_bytes,
                slab_bytes=SLAB_BYTES,
                epoch=0,
            )
            write_superblock(device, superblock)
        return lab

    @contextmanager
    def open(self, wrap: Wrap = plain, *, start: Start = Start.WALK) -> Iterator[ServedStore]:
        """Opens, recovers and serves, as the daemon does; in the end stops and cleans up.

        Raises what the daemon's start does, and AssertionError where a thread of the store
        met an exception. A store that was abandoned by ``crash`` is
        ended without touching what the lab has then.
        """
        with no_stray_exceptions():
            yield from self._served(wrap, start)

    def left_now(self, served: ServedStore, folder: Path) -> "Lab":
        """A copy of what a crash at this moment leaves; nothing may be written meanwhile."""
        index = save_index(served, folder.with_suffix(".index"))
        return Lab.of(folder, index, [device.media for device in self.devices])

    def crash(self, served: ServedStore, images: Sequence[np.ndarray]) -> None:
        """From now on the devices hold ``images`` and the index what is committed now.

        Nothing may be written meanwhile. The open store is to be abandoned.
        """
        served.stops_cleanly = False
        old = self.index_path
        self.index_count += 1
        save_index(served, self.index_path)
        self.replace_media(images)
        shutil.rmtree(old, ignore_errors=True)

    def replace_media(self, images: Sequence[np.ndarray]) -> None:
        """From now on the devices hold ``images``."""
        self.devices = tuple(
            memory_device(device.facts.name, image)
            for device, image in zip(self.devices, images, strict=True)
        )

    @classmethod
    def of(cls, folder: Path, index: Path, images: Sequence[np.ndarray]) -> Self:
        """A lab in a new ``folder`` with a copy of an index and of what devices hold."""
        folder.mkdir(parents=True)
        shutil.copytree(index, folder / "index-1")
        return cls(
            folder,
            tuple(memory_device(f"memory-{number}", image) for number, image in enumerate(images)),
        )

    def _served(self, wrap: Wrap, start: Start) -> Iterator[ServedStore]:
        devices = tuple(MonitoredDevice(wrap(device)) for device in self.devices)
        device_set = device_set_of(devices)
        index, recovered = self._recovered(device_set, start)
        served: ServedStore | None = None
        store: TieredStore | None = None
        try:
            begin_epoch(index, device_set)
            store = tiered_store(device_set, devices, index, recovered, self.dram_bytes)
            served = ServedStore(
                store=store,
                device_set=device_set,
                index=index,
                table=recovered.table,
                arena=aligned_arena(),
            )
            yield served
        finally:
            if store is not None:
                store.close()
            if store is not None and served is not None and served.stops_cleanly:
                close_cleanly(index, recovered.table, store.next_stamp)
            else:
                index.close()

    def _recovered(self, device_set: DeviceSet, start: Start) -> tuple[Index, Recovered]:
        if start is Start.SERVICE:
            return open_recovered(self.index_path, MAP_BYTES, device_set, lambda *_: None)
        index = Index.open(self.index_path, map_bytes=MAP_BYTES)
        try:
            if start is Start.REBUILD or index.meta() is None:
                rebuild_index(device_set, index, lambda *_: None)
            return index, recover(index, device_set)
        except BaseException:
            index.close()
            raise


def device_set_of(devices: tuple[Device, ...]) -> DeviceSet:
    """The set that superblocks on these devices describe; raises FormatError or DeviceError."""
    superblocks = tuple(read_superblock(device) for device in devices)
    return DeviceSet(
        set_id=superblocks[0].set_id,
        epoch=max(superblock.epoch for superblock in superblocks),
        slab_bytes=superblocks[0].slab_bytes,
        devices=devices,
        superblocks=superblocks,
    )


def tiered_store(
    device_set: DeviceSet,
    devices: tuple[MonitoredDevice, ...],
    index: Index,
    recovered: Recovered,
    dram_bytes: int,
) -> TieredStore:
    """A store with small buffers, so that little data takes many transfers."""
    return TieredStore(
        RecoveredStore(
            device_set=device_set,
            devices=devices,
            index=index,
            allocator=recovered.allocator,
            table=recovered.table,
            next_stamp=recovered.next_stamp,
        ),
        engine=CountingEngine(ThreadEngine(devices, depth=2)),
        limits=TierLimits(
            dram_bytes=dram_bytes,
            dram_slab_bytes=SLAB_BYTES,
            commit=CommitLimits(interval_s=0.002, group_bytes=8 * MIB),
            reader=ReaderLimits(
                depth=2,
                copy_depth=1,
                window_bytes=256 * KIB,
                plan=PlanLimits(run_bytes_min=8 * KIB, run_bytes_max=RUN_BYTES_MAX),
            ),
        ),
    )


def save_index(served: ServedStore, folder: Path) -> Path:
    """Copies what is committed now to a new ``folder`` and returns that."""
    folder.mkdir()
    served.index._tables.environment.copy(str(folder))
    return folder


def memory_device(name: str, image: np.ndarray) -> MemoryDevice:
    """A device that holds a copy of ``image``."""
    device = MemoryDevice(name, image.nbytes)
    np.copyto(device.media, image)
    return device


def aligned_arena() -> memoryview:
    """Page-aligned memory of ``ARENA_BYTES``."""
    memory = np.zeros(ARENA_BYTES + 4096, np.uint8)
    start = -memory.ctypes.data % 4096
    return memory.data[start : start + ARENA_BYTES]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in memory where there is one: flushes are no subject here."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="kvstored-media-", dir=shared if shared.is_dir() else None
    ) as name:
        yield Path(name)


@contextmanager
def fresh_lab(*, device_count: int = 2, slab_count: int = 2) -> Iterator[Lab]:
    """A formatted lab that leaves nothing behind."""
    with scratch_folder() as folder:
        yield Lab.format(folder, device_count=device_count, slab_count=slab_count)
