"""Bytes on the device for each token, of the paper's three models (table 3)."""

from pathlib import Path

from benchmarks.benchmark import BenchmarkError
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.restore.shapes import ModelShape
from benchmarks.restore.table_3 import TABLE_3, schedule_of
from engine_adapters.restore import LayerSchedule, Source
from kvstored.format.geometry import HEADER_BYTES
from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    StateKind,
    StateLayout,
)

CHUNK_TOKENS = 64
CHUNKS = 4
MIB = 1024 * 1024
SLAB_BYTES = 128 * MIB
DEVICE_BYTES = 2048 * MIB
ARENA_BYTES = 512 * MIB


def kv_over_stored(folder: Path) -> dict[str, float]:
    """For each model: the device's bytes of a token as KV, over those of HCache's schedule."""
    options = DaemonOptions(
        folder=folder,
        device_bytes=DEVICE_BYTES,
        slab_bytes=SLAB_BYTES,
        dram_bytes=2 * SLAB_BYTES,
        arena_bytes_max=ARENA_BYTES,
        device_count=1,
    )
    with served(options, name="storage") as (_, client):
        return {
            printed.shape.name: _used_bytes(client, printed.shape, _kv(printed.shape))
            / _used_bytes(client, printed.shape, schedule_of(printed.shape))
            for printed in TABLE_3
        }


def _kv(shape: ModelShape) -> LayerSchedule:
    return LayerSchedule.of((Source.KV, shape.layer_count))


def _used_bytes(client: Client, shape: ModelShape, schedule: LayerSchedule) -> float:
    """What the device holds of one token more, extent headers included.

    Raises BenchmarkError unless that is exactly the states and a header for each chunk.
    """
    sizes = {
        StateKind.HIDDEN: shape.hidden_bytes,
        StateKind.KV: shape.kv_bytes,
        StateKind.NONE: 0,
    }
    layout = StateLayout(
        model=f"{shape.name} {schedule}",
        dtype="float16",
        layers=tuple(LayerState(kind, sizes[kind]) for kind in schedule.kinds()),
        chunk_tokens=CHUNK_TOKENS,
    )
    before = client.admin.stats().devices[0].used_bytes
    for number in range(CHUNKS):
        region = client.allocate(Placement.contiguous_bytes(layout, 1))
        if region is None:
            raise BenchmarkError("the arena has no room for a chunk")
        with region:
            key = layout.layout_id[:-1] + bytes([number])
            report = client.put(
                layout,
                [NewChunk(key=key, token_count=CHUNK_TOKENS)],
                Placement.contiguous(region, layout),
                ack=Ack.DURABLE,
                timeout_ms=60_000,
            )
        if report.stored_count != 1:
            raise BenchmarkError(f"a chunk of {shape.name} was not stored")
    used_bytes = client.admin.stats().devices[0].used_bytes - before
    expected_bytes = CHUNKS * chunk_bytes(shape, schedule)
    if used_bytes != expected_bytes:
        raise BenchmarkError(
            f"{CHUNKS} chunks of {shape.name} take {used_bytes} bytes of the device, and should "
            f"take {expected_bytes}"
        )
    return used_bytes / (CHUNKS * CHUNK_TOKENS)


def chunk_bytes(shape: ModelShape, schedule: LayerSchedule) -> int:
    """What a chunk has to take: the states of its tokens and a page for its header."""
    token_bytes = schedule.token_bytes(hidden_bytes=shape.hidden_bytes, kv_bytes=shape.kv_bytes)
    return CHUNK_TOKENS * token_bytes + HEADER_BYTES
