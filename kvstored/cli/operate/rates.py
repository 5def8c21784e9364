"""What happened between two looks at a daemon. Pure."""

from dataclasses import dataclass

from kvstored_protos.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """A device: how full it is, and what it does; rates are of bytes each second."""

    path: str
    used_bytes: int
    capacity_bytes: int
    read_bytes_per_s: float
    written_bytes_per_s: float
    is_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of a whole daemon; shares are parts of 1, and None where nothing was asked."""

    devices: tuple[DeviceRates, ...]
    reads_per_s: float
    puts_per_s: float
    """Chunks that were stored."""
    restored_chunks_per_s: float
    hit_share: float | None
    """Of the chunks that reads asked for, those that were there."""
    dram_share: float | None
    """Of those that were there, those in DRAM."""


def rates_of(before: admin_pb2.StatsReply, now: admin_pb2.StatsReply, *, elapsed_s: float) -> Rates:
    """Of the time between both looks; a daemon that has restarted meanwhile counts from 0."""
    earlier = before if before.epoch == now.epoch else admin_pb2.StatsReply()
    past = {device.path: device for device in earlier.devices}

    def grown(name: str) -> int:
        return now.counters.get(name, 0) - earlier.counters.get(name, 0)

    in_dram, on_devices = grown("dram_hit_chunks"), grown("nvme_hit_chunks")
    hits, missed = in_dram + on_devices, grown("missed_chunks")
    none = admin_pb2.DeviceStats()
    return Rates(
        devices=tuple(
            DeviceRates(
                path=one.path,
                used_bytes=one.used_bytes,
                capacity_bytes=one.capacity_bytes,
                read_bytes_per_s=(one.read_bytes - past.get(one.path, none).read_bytes) / elapsed_s,
                written_bytes_per_s=(one.written_bytes - past.get(one.path, none).written_bytes)
                / elapsed_s,
                is_failed=one.failed,
            )
            for one in now.devices
        ),
        reads_per_s=grown("read_requests") / elapsed_s,
        puts_per_s=grown("put_stored_chunks") / elapsed_s,
        restored_chunks_per_s=hits / elapsed_s,
        hit_share=hits / (hits + missed) if hits + missed else None,
        dram_share=in_dram / hits if hits else None,
    )
