"""The chunks of the power lab and the small store that they lie in."""

from functools import cache
from pathlib import Path

import numpy as np
from pydantic import ByteSize

from kvstored.config import Config, DramSection, IoSection, ScrubSection, StoreSection
from kvstored.format.identity import ChunkId, namespace_id
from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES
from kvstored.io.open_engine import EngineKind
from kvstored.store.read.placement import Placement
from kvstored_contract.layout import RAW, LayerState, StateKind, StateLayout
from tests.support.rows import Rows

NAMESPACE_NAME = "power"
NAMESPACE = namespace_id(NAMESPACE_NAME)
NUMBERS = range(48)
"""Chunks that the workload knows: more than the devices can hold."""
DEVICE_COUNT = 2
SLAB_BYTES = 64 * 1024
SLABS_PER_DEVICE = 3
DEVICE_BYTES = DATA_OFFSET + SLABS_PER_DEVICE * SLAB_BYTES + SUPERBLOCK_BYTES
INDEX_MAP_BYTES = 4 * 1024 * 1024
_DRAM_BYTES = 16 * SLAB_BYTES
_READ_BYTES_MAX = 64 * 1024

LAYOUTS = tuple(
    StateLayout(
        model=f"power-{token_bytes}-{codec}",
        dtype="float32",
        layers=(LayerState(StateKind.KV, token_bytes),) * 2,
        chunk_tokens=16,
        codec=codec,
    )
    for token_bytes, codec in ((256, RAW), (300, RAW), (300, "lab"))
)
"""Slices of one page, slices that end inside their second page, and such as are encoded.

The encoded ones have one page or two: all together have three size classes.
"""

SEQUENCE_LAYOUT = StateLayout(
    model="power-sequence",
    dtype="float32",
    layers=(LayerState(StateKind.KV, 256), LayerState(StateKind.HIDDEN, 256)),
    chunk_tokens=16,
)
"""Chunks of sequences: of the size class of the first layout, so that they evict each other."""
ROWS = Rows(SEQUENCE_LAYOUT, namespace=NAMESPACE_NAME)


def layout_of(number: int) -> StateLayout:
    """The layout of a chunk: every third has the larger one, every third an encoded one."""
    return LAYOUTS[number % 3]


@cache
def lengths_of(number: int, version: int) -> tuple[int, ...]:
    """Bytes of each slice of a chunk."""
    layout = layout_of(number)
    most = [layout.slice_bytes(layer) for layer in range(layout.layer_count)]
    if not layout.is_encoded:
        return tuple(most)
    generator = np.random.default_rng((number, version, 1))
    return tuple(generator.integers(1, most, endpoint=True).tolist())


def chunk_of(number: int) -> ChunkId:
    """The identity of a chunk."""
    return ChunkId(NAMESPACE, number.to_bytes(32, "big"))


def number_of(chunk: ChunkId) -> int:
    """The number of a chunk of this lab; one of a sequence has a number beyond all others."""
    return int.from_bytes(chunk.key, "big")


@cache
def payload_of(number: int, version: int) -> bytes:
    """The bytes of a chunk: its slices at the stride of its layout.

    A version is what is stored under the key between two deletions. A real client never
    gives a key other bytes; here stale bytes must differ from those that are wanted.
    """
    layout = layout_of(number)
    generator = np.random.default_rng((number, version))
    slices = (
        generator.bytes(length).ljust(layout.layer_stride, b"\0")
        for length in lengths_of(number, version)
    )
    return b"".join(slices)


def placement_of(layout: StateLayout) -> Placement:
    """Chunks one after the other, at the start of an arena."""
    stride = layout.layer_stride
    return Placement(base=0, layer_stride=stride, chunk_stride=stride * layout.layer_count)


def config_of(folder: Path, *, depth_per_device: int) -> Config:
    """A store in ``folder``, smaller than a configuration file may ask for."""
    return Config.model_construct(
        store=StoreSection.model_construct(
            devices=tuple(device_paths(folder)),
            device_bytes=ByteSize(DEVICE_BYTES),
            slab_bytes=ByteSize(SLAB_BYTES),
            index=index_path(folder),
            index_map_bytes=ByteSize(INDEX_MAP_BYTES),
        ),
        dram=DramSection(capacity_bytes=ByteSize(_DRAM_BYTES)),
        io=IoSection(
            engine=EngineKind.THREADS,
            depth_per_device=depth_per_device,
            read_bytes_max=ByteSize(_READ_BYTES_MAX),
        ),
        scrub=ScrubSection(bytes_per_s_max=ByteSize(0)),
    )


def device_paths(folder: Path) -> list[Path]:
    """The devices of a store in ``folder``."""
    return [folder / f"device{index}" for index in range(DEVICE_COUNT)]


def index_path(folder: Path) -> Path:
    """The index of a store in ``folder``."""
    return folder / "index"
