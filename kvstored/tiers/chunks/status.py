"""What the store tells about itself."""

from dataclasses import dataclass

from kvstored.format.extent_header import SliceSum
from kvstored.format.identity import ChunkId
from kvstored_contract.layout import StateLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """One device: its space, and what was transferred since start."""

    path: str
    capacity_bytes: int
    used_bytes: int
    read_bytes: int
    written_bytes: int
    read_requests: int
    write_requests: int
    flush_requests: int
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubStatus:
    """Where the scrub is: it is off, waits for its next pass, or is in one.

    ``progress`` is the part of the pass that is done, 0 to 1, and 0 between passes;
    ``ended_ms`` is when the last one since the start ended, in milliseconds since 1970,
    and 0 before that.
    """

    progress: float = 0.0
    ended_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceStatus:
    """What a namespace takes, and what it may; a limit of 0 is none, ``ttl_s`` of 0 is for ever.

    ``name`` is empty for all namespaces together that have no quota.
    """

    name: str
    dram_used_bytes: int
    dram_guaranteed_bytes: int
    dram_limit_bytes: int
    device_used_bytes: int
    device_guaranteed_bytes: int
    device_limit_bytes: int
    ttl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """The whole store at one moment; counters count since start.

    ``pinned_chunk_count`` chunks have extents that may not be reused now. ``index_failed``
    tells that a write of the index has failed, and that nothing is stored any more.
    """

    epoch: int
    chunk_count: int
    sequence_count: int
    dram_capacity_bytes: int
    dram_used_bytes: int
    dram_chunk_count: int
    pinned_chunk_count: int
    index_failed: bool
    counters: dict[str, int]
    devices: tuple[DeviceStatus, ...]
    scrub: ScrubStatus = ScrubStatus()
    waiting_request_count: int = 0
    """Requests that wait in the queues of engines."""
    namespaces: tuple[NamespaceStatus, ...] = ()
    """Those with a quota, and last all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStatus:
    """One chunk as the index knows it."""

    chunk: ChunkId
    layout_id: bytes
    token_count: int
    device_index: int
    offset: int
    extent_bytes: int
    epoch: int
    quarantined: bool
    in_dram: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDetail:
    """One chunk with what its header on the device says; no slices if that is damaged."""

    status: ChunkStatus
    parent_key: bytes
    slices: tuple[SliceSum, ...]
    layout: StateLayout | None = None
    """None when the index does not know it."""
