"""Hypothesis strategies for the values that lie on media."""

from hypothesis import strategies as st

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import SLICES_MAX, ExtentHeader, SliceSum
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceRecord, SequenceTail
from kvstored.format.slab_header import SlabHeader
from kvstored.format.superblock import Superblock
from kvstored_contract.layout import RAW, LayerState, Rotary, Shard, StateKind, StateLayout
from kvstored_contract.limits import SHARDS_MAX, TOKEN_BYTES_MAX

word16 = st.integers(0, 2**16 - 1)
word32 = st.integers(0, 2**32 - 1)
word64 = st.integers(0, 2**64 - 1)
shard_numbers = st.integers(0, SHARDS_MAX)
ids = st.binary(min_size=16, max_size=16)
keys = st.binary(min_size=32, max_size=32)
chunk_ids = st.builds(ChunkId, ids, keys)
slice_sums = st.builds(SliceSum, word32, word64)

superblocks = st.builds(
    Superblock,
    set_id=ids,
    device_id=ids,
    device_index=word16,
    device_count=word16,
    capacity_bytes=word64,
    slab_bytes=st.integers(1, 2**64 - 1),
    epoch=word64,
)
slab_headers = st.builds(
    SlabHeader, device_id=ids, slab_index=word64, class_bytes=word64, epoch=word64
)
chunk_records = st.builds(
    ChunkRecord,
    extent=st.builds(Extent, word16, word64, word64),
    layout_id=keys,
    token_count=word32,
    epoch=word64,
    stamp=word64,
    header_checksum=word64,
)
extent_headers = st.builds(
    ExtentHeader,
    device_id=ids,
    offset=word64,
    chunk=chunk_ids,
    parent_key=st.just(b"") | keys.filter(any),
    layout_id=keys,
    class_bytes=word64,
    epoch=word64,
    stamp=word64,
    token_count=word32,
    slices=st.lists(slice_sums, max_size=SLICES_MAX).map(tuple),
    is_encoded=st.booleans(),
)
sequence_records = st.builds(
    SequenceRecord,
    layout_id=keys,
    keys=st.lists(keys, max_size=20).map(tuple),
    dropped_chunks=word64,
    tail=st.none() | st.builds(SequenceTail, key=keys, token_count=st.integers(1, 2**32 - 1)),
)

_stored_layers = st.builds(
    LayerState, st.sampled_from([StateKind.KV, StateKind.HIDDEN]), st.integers(1, TOKEN_BYTES_MAX)
)
_layers = st.lists(_stored_layers | st.just(LayerState(StateKind.NONE, 0)), min_size=1, max_size=40)
layouts = st.builds(
    StateLayout,
    model=st.text(min_size=1, max_size=40),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    layers=_layers.filter(lambda layers: any(layer.token_bytes for layer in layers)).map(tuple),
    chunk_tokens=st.integers(1, 4096),
    codec=st.sampled_from([RAW, "zstd", "a-codec_2.0"]),
    rotary=st.sampled_from(Rotary),
    shard=st.builds(
        Shard,
        tensor_rank=shard_numbers,
        tensor_size=shard_numbers,
        pipeline_first_layer=shard_numbers,
        pipeline_layer_count=shard_numbers,
    ).filter(lambda shard: shard.tensor_rank < max(1, shard.tensor_size)),
)
