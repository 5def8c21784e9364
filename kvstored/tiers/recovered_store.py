"""What a start of the daemon hands to the tiers."""

from dataclasses import dataclass

from kvstored.io.monitored import MonitoredDevice
from kvstored.store.index.index import Index
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.device_set import DeviceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredStore:
    """An opened and recovered device set with its index and the chunks that are on it."""

    device_set: DeviceSet
    devices: tuple[MonitoredDevice, ...]
    index: Index
    allocator: Allocator
    table: ChunkTable
    next_stamp: int
