"""Chunks through a real daemon with every codec, and what a chunk's codec refuses."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine_adapters.chunk_codec import ChunkCodec
from engine_adapters.codecs.errors import CodecError, PayloadError, StatesError
from engine_adapters.codecs.registry import CODEC_NAMES
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import (
    RAW,
    Ack,
    Client,
    LayerState,
    NewChunk,
    Order,
    Placement,
    Read,
    Region,
    StateKind,
    StateLayout,
)
from kvstored_contract.layout import align_up
from tests.engine_adapters.codecs.states import model_like
from tests.support.daemon import DaemonProcess

CHUNKS = 6
TOKENS = 64
SHAPES = ((2, TOKENS, 2, 64), (TOKENS, 128), None, (2, TOKENS, 2, 64))
DTYPE = torch.float16
STATES = StateLayout(
    model="encoded",
    dtype="float16",
    layers=(
        LayerState(StateKind.KV, 512),
        LayerState(StateKind.HIDDEN, 256),
        LayerState(StateKind.NONE, 0),
        LayerState(StateKind.KV, 512),
    ),
    chunk_tokens=TOKENS,
)
STORED = [layer for layer, shape in enumerate(SHAPES) if shape]
ARENA_BYTES = 16 << 20
HEADER_BYTES = 4096
LOSS_MAX = {"raw": 0.0, "zstd": 0.0, "int8": 1 / 127, "int3": 1 / 7, "cachegen": 0.75}
"""Greatest error as a part of the range of a slice's values, roughly: a step, or half of it."""


def slices_of(chunk: int) -> list[Tensor | None]:
    return [
        None if shape is None else model_like(shape, DTYPE, number=10 * chunk + layer)
        for layer, shape in enumerate(SHAPES)
    ]


def codec_of(name: str) -> ChunkCodec:
    return ChunkCodec.of(STATES, SHAPES, DTYPE, name)


def opened(client: Client, codec: ChunkCodec) -> Region:
    region = client.allocate(Placement.contiguous_bytes(codec.layout, CHUNKS))
    assert region is not None
    region.view[:] = bytes([0xEE]) * region.byte_count
    return region


def put(client: Client, codec: ChunkCodec) -> tuple[list[bytes], list[tuple[bytes, ...]]]:
    """Stores all chunks durably: their keys and payloads."""
    keys = client.prefix_keys(codec.layout, range(CHUNKS * TOKENS))
    payloads = [codec.encode(slices_of(chunk)) for chunk in range(CHUNKS)]
    region = opened(client, codec)
    for chunk, parts in enumerate(payloads):
        codec.place(parts, region.view, chunk)
    chunks = [
        NewChunk(key=key, token_count=TOKENS, slice_bytes=codec.slice_bytes(parts))
        for key, parts in zip(keys, payloads, strict=True)
    ]
    source = Placement.contiguous(region, codec.layout)
    report = client.put(codec.layout, chunks, source, ack=Ack.DURABLE)
    assert report.stored_count == CHUNKS
    region.release()
    return keys, payloads


def payload_at(codec: ChunkCodec, region: Region, read: Read, chunk: int, layer: int) -> bytes:
    stride = codec.layout.layer_stride
    start = (chunk * codec.layout.layer_count + layer) * stride
    size = read.slice_bytes(chunk, layer)
    if not codec.layout.is_encoded:
        assert size is None
        size = codec.layout.slice_bytes(layer)
    assert size is not None
    end = start + min(stride, align_up(codec.layout.slice_bytes(layer)))
    assert set(region.view[start + size : end]) <= {0xEE}, "bytes behind the slice are not ours"
    return bytes(region.view[start : start + size])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as process:
        yield process


@pytest.mark.parametrize("name", CODEC_NAMES)
def test_what_was_encoded_comes_back_after_a_restart(daemon: DaemonProcess, name: str) -> None:
    codec = codec_of(name)
    with Client(
        daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True, reconnect_interval_s=0
    ) as client:
        written_before = written_bytes(client)
        keys, payloads = put(client, codec)
        moved = sum(HEADER_BYTES + sum(align_up(len(part)) for part in parts) for parts in payloads)
        slab_headers = written_bytes(client) - written_before - moved
        assert 0 <= slab_headers <= 16 * 4096
    daemon.restart()
    with Client(
        daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True, reconnect_interval_s=0
    ) as client:
        assert client.match(codec.layout, keys).chunk_count == CHUNKS
        for order in Order:
            region = opened(client, codec)
            target = Placement.contiguous(region, codec.layout)
            with client.read(codec.layout, keys, target, order=order) as read:
                report = read.wait()
            assert report.resident_prefix == CHUNKS
            # The third read finds some of it in DRAM, which needs no headers.
            assert report.device_bytes + report.dram_bytes <= moved
            if order is Order.TAIL_FIRST:
                assert report.device_bytes == moved
            for chunk, parts in enumerate(payloads):
                for layer in STORED:
                    assert payload_at(codec, region, read, chunk, layer) == parts[layer]
            region.release()
    check_loss(codec, payloads)


def check_loss(codec: ChunkCodec, payloads: list[tuple[bytes, ...]]) -> None:
    for chunk, parts in enumerate(payloads):
        for layer, states in enumerate(slices_of(chunk)):
            if states is None:
                assert parts[layer] == b""
                continue
            out = torch.empty_like(states)
            codec.decode(layer, parts[layer], out)
            spread = (states.max() - states.min()).item()
            loss = (out.float() - states.float()).abs().max().item()
            assert loss <= LOSS_MAX[codec.codecs[layer].name] * spread
            assert not codec.codecs[layer].is_lossless or torch.equal(out, states)


def written_bytes(client: Client) -> int:
    return sum(device.written_bytes for device in client.admin.stats().devices)


def test_fewer_bytes_move_the_coarser_the_codec() -> None:
    sizes = {name: sum(map(len, codec_of(name).encode(slices_of(0)))) for name in CODEC_NAMES}
    assert sizes["int8"] < sizes["zstd"] < sizes["raw"]
    assert max(sizes["int3"], sizes["cachegen"]) < 0.6 * sizes["int8"]


def test_layers_of_an_encoded_chunk_are_read_alone(daemon: DaemonProcess) -> None:
    codec = codec_of("cachegen")
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, salt="layers", strict=True) as client:
        keys, payloads = put(client, codec)
        region = opened(client, codec)
        target = Placement.contiguous(region, codec.layout, 1)
        with client.read(codec.layout, keys, target, first_layer=3) as read:
            assert read.wait().resident_prefix == CHUNKS
            stride = codec.layout.layer_stride
            for chunk, parts in enumerate(payloads):
                size = read.slice_bytes(chunk, 0)
                assert bytes(region.view[chunk * stride :][:size]) == parts[3]


def test_one_key_has_another_name_under_every_codec() -> None:
    ids = {codec_of(name).layout.layout_id for name in CODEC_NAMES}
    assert len(ids) == len(CODEC_NAMES)
    assert codec_of(RAW).layout == STATES


def test_a_payload_fits_the_layout_whatever_the_states_are() -> None:
    noise = [None if shape is None else model_like(shape, DTYPE) * 1000 for shape in SHAPES]
    for name in CODEC_NAMES:
        codec = codec_of(name)
        for layer, payload in enumerate(codec.encode(noise)):
            assert len(payload) <= codec.layout.slice_bytes(layer)


@pytest.mark.parametrize("count", [1, 5, TOKENS - 1])
@pytest.mark.parametrize("name", CODEC_NAMES)
def test_a_short_chunk_is_encoded_as_such(name: str, count: int) -> None:
    codec = codec_of(name)
    shapes = [(2, count, 2, 64), (count, 128), None, (2, count, 2, 64)]
    slices = [None if shape is None else model_like(shape, DTYPE) for shape in shapes]
    payloads = codec.encode(slices)
    for layer, (states, payload) in enumerate(zip(slices, payloads, strict=True)):
        if states is None:
            assert not payload
            continue
        assert len(payload) <= codec.layout.slice_bytes(layer)
        decoded = torch.empty_like(states)
        codec.decode(layer, payload, decoded)
        span = float(states.max() - states.min())
        assert float((decoded - states).abs().max()) <= LOSS_MAX[name] * span


def test_refuses_other_states() -> None:
    codec = codec_of("zstd")
    slices = slices_of(0)
    with pytest.raises(StatesError, match="not nothing"):
        codec.encode([None, *slices[1:]])
    with pytest.raises(StatesError, match=r"\[64, 128\] torch\.float16 is wanted"):
        codec.encode([slices[0], torch.zeros(64, 127, dtype=DTYPE), *slices[2:]])
    with pytest.raises(StatesError, match=r"torch\.float32"):
        codec.encode([slices[0], torch.zeros(64, 128), *slices[2:]])
    for count in (0, TOKENS + 1):
        with pytest.raises(StatesError, match=rf"not \[{count}, 128\]"):
            codec.encode([slices[0], torch.zeros(count, 128, dtype=DTYPE), *slices[2:]])
    with pytest.raises(PayloadError):
        codec.decode(0, b"short", torch.empty(SHAPES[0], dtype=DTYPE))


def test_refuses_shapes_that_are_not_the_layout_s() -> None:
    with pytest.raises(ValueError, match="3 shapes for a layout of 4 layers"):
        ChunkCodec.of(STATES, SHAPES[:3], DTYPE, "zstd")
    with pytest.raises(ValueError, match="layer 2 has slices of 0 bytes"):
        ChunkCodec.of(STATES, (SHAPES[0], SHAPES[1], (TOKENS, 8), SHAPES[3]), DTYPE, "zstd")
    with pytest.raises(ValueError, match="layer 0"):
        ChunkCodec.of(replace(STATES, chunk_tokens=32), SHAPES, DTYPE, "zstd")
    with pytest.raises(CodecError, match="no codec is named"):
        ChunkCodec.of(STATES, SHAPES, DTYPE, "other")


def test_the_runner_s_formats_name_their_shapes() -> None:
    """A schedule that stores hidden states and KV, and nothing of the first layer."""
    kinds = (
        LayerState(StateKind.NONE, 0),
        LayerState(StateKind.HIDDEN, 128),
        LayerState(StateKind.KV, 256),
    )
    layout = StateLayout(model="m", dtype="float16", layers=kinds, chunk_tokens=TOKENS)
    states = StateFormat(layout=layout, hidden_size=64, kv_head_count=2, head_dim=32, dtype=DTYPE)
    shapes = [
        None if layer.kind is StateKind.NONE else states.slice_shape(number)
        for number, layer in enumerate(layout.layers)
    ]
    codec = ChunkCodec.of(layout, shapes, states.dtype, "int8")
    slices = [None if shape is None else model_like(shape, DTYPE) for shape in shapes]
    payloads = codec.encode(slices)
    assert codec.slice_bytes(payloads) == tuple(map(len, payloads))
    assert payloads[0] == b""
    original = slices[2]
    assert original is not None
    out = torch.empty_like(original)
    codec.decode(2, payloads[2], out)
    assert torch.allclose(out, original, atol=0.1)
