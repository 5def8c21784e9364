"""Damaged bytes: a PayloadError, or values of the right shape where nothing can tell."""

import struct
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
import torch
import zstandard
from hypothesis import strategies as st

from engine_adapters.codecs.codec import Codec
from engine_adapters.codecs.errors import PayloadError
from engine_adapters.codecs.header import HEADER_BYTES, payload_bytes
from engine_adapters.codecs.int8 import Int8Codec
from engine_adapters.codecs.zstd import ZstdCodec
from tests.engine_adapters.codecs.states import CODECS, codec_id, decoded, model_like, randomised

# Large enough that cachegen's symbols are compressed.
STATES = model_like((2, 60, 3, 33), torch.bfloat16)
each_codec = pytest.mark.parametrize("codec", CODECS, ids=codec_id)
headed = pytest.mark.parametrize(
    "codec", [codec for codec in CODECS if codec.name != "raw"], ids=codec_id
)


def decodes(codec: Codec, payload: bytes) -> bool:
    """Whether the payload decodes; any error but a PayloadError fails the test."""
    try:
        values = decoded(codec, payload, STATES)
    except PayloadError:
        return False
    assert codec.is_lossless or values.isfinite().all()
    return True


@each_codec
def test_every_truncation_is_found(codec: Codec) -> None:
    payload = codec.encode(STATES)
    assert decodes(codec, payload)
    lengths = {*range(100), *range(0, len(payload), 37), len(payload) - 1}
    assert not any(decodes(codec, payload[:length]) for length in lengths)
    # Also where the header still fits what is left of the body.
    for length in lengths if codec.name != "raw" else ():
        if length >= HEADER_BYTES:
            shortened = bytearray(payload[:length])
            struct.pack_into("<I", shortened, HEADER_BYTES - 8, length - HEADER_BYTES)
            assert not decodes(codec, bytes(shortened))


@each_codec
def test_what_is_too_long_is_found(codec: Codec) -> None:
    payload = codec.encode(STATES)
    assert not decodes(codec, payload + b"\0")
    if codec.name != "raw":
        longer = bytearray(payload + b"\0")
        struct.pack_into("<I", longer, HEADER_BYTES - 8, len(longer) - HEADER_BYTES)
        assert not decodes(codec, bytes(longer))


@headed
def test_every_bit_of_the_header_counts(codec: Codec) -> None:
    payload = codec.encode(STATES)
    for bit in range(8 * HEADER_BYTES):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not decodes(codec, bytes(damaged))


@each_codec
def test_damage_never_crashes(codec: Codec) -> None:
    payload = codec.encode(STATES)
    places = st.integers(0, len(payload) - 1) | st.integers(HEADER_BYTES, HEADER_BYTES + 40)
    damages = st.lists(st.tuples(places, st.integers(1, 255)), min_size=1, max_size=8)

    @randomised(150, damages=damages)
    def run(damages: list[tuple[int, int]]) -> None:
        damaged = bytearray(payload)
        for place, change in damages:
            damaged[place] ^= change
        decodes(codec, bytes(damaged))

    run()


@headed
def test_any_body_behind_a_good_header(codec: Codec) -> None:
    payload = codec.encode(STATES)

    @randomised(150, body=st.binary(max_size=300))
    def run(body: bytes) -> None:
        start = bytearray(payload[:HEADER_BYTES])
        struct.pack_into("<I", start, HEADER_BYTES - 8, len(body))
        assert not decodes(codec, bytes(start) + body)

    run()


@headed
def test_payloads_of_others_are_refused(codec: Codec) -> None:
    payload = codec.encode(STATES)
    for other in CODECS:
        assert decodes(other, payload) == (other.name == codec.name)
    for like in (
        STATES.to(torch.float16),
        STATES.view(torch.int16).to(torch.float32),
        STATES.reshape(2, 33, 3, 60),
        STATES.reshape(120, 99),
    ):
        with pytest.raises(PayloadError, match="no payload of codec"):
            decoded(codec, payload, like)


@pytest.mark.parametrize("octets", [b"", b"KVCD", bytes(HEADER_BYTES), b"KVCX" + bytes(99)])
def test_length_of_what_is_no_payload(octets: bytes) -> None:
    with pytest.raises(PayloadError):
        payload_bytes(octets)


def zstd_payload(make_segment: Callable[[bytes], bytes]) -> bytes:
    """A payload of ``zstd`` for STATES whose planes are segments made of their bytes."""
    planes = STATES.view(torch.int16).flatten()
    octets = planes.view(torch.uint8).view(-1, 2).numpy()
    body = [make_segment(octets[:, place].tobytes()) for place in (1, 0)]
    start = bytearray(ZstdCodec().encode(STATES)[:HEADER_BYTES])
    struct.pack_into("<I", start, HEADER_BYTES - 8, sum(map(len, body)))
    return bytes(start) + b"".join(body)


def frame_segment(frame: bytes) -> bytes:
    return struct.pack("<II", 1, len(frame)) + frame


def stored_segment(octets: bytes) -> bytes:
    return struct.pack("<II", 0, len(octets)) + octets


def test_segments_of_others_writing() -> None:
    compress = zstandard.ZstdCompressor().compress
    assert decodes(ZstdCodec(), zstd_payload(stored_segment))
    assert decodes(ZstdCodec(), zstd_payload(lambda octets: frame_segment(compress(octets))))
    no_size = zstandard.ZstdCompressor(write_content_size=False).compress
    for make in (
        lambda octets: frame_segment(no_size(octets)),
        lambda octets: frame_segment(compress(octets) + b"\0"),
        lambda octets: frame_segment(compress(octets + b"\0")),
        lambda octets: frame_segment(compress(octets[1:])),
        lambda octets: stored_segment(octets[1:]),
        lambda octets: stored_segment(octets + b"\0"),
        lambda octets: struct.pack("<II", 2, len(octets)) + octets,
        lambda octets: struct.pack("<II", 0, 2**32 - 1) + octets,
    ):
        assert not decodes(ZstdCodec(), zstd_payload(make))


def test_a_frame_that_holds_nothing_is_refused() -> None:
    """A skippable frame states a length, and decompresses to no bytes."""
    size = STATES.numel()
    skippable = struct.pack("<II", 0x184D2A50, size) + bytes(size)
    assert not decodes(ZstdCodec(), zstd_payload(lambda _: frame_segment(skippable)))


def windowed_frame(octets: bytes, window_log: int) -> bytes:
    """A frame that states its length and a window, and holds one uncompressed block."""
    start = struct.pack("<IBBI", 0xFD2FB528, 0x80, (window_log - 10) << 3, len(octets))
    return start + (len(octets) << 3 | 1).to_bytes(3, "little") + octets


def windowed_segment(octets: bytes, window_log: int) -> bytes:
    return frame_segment(windowed_frame(octets, window_log))


def test_a_frame_with_a_large_window_is_refused() -> None:
    """A decompressor would allocate the window."""
    for window_log, is_good in ((17, True), (18, False), (26, False)):
        frame = windowed_frame(b"states", window_log)
        assert zstandard.get_frame_parameters(frame).window_size == 1 << window_log
        assert zstandard.ZstdDecompressor().decompress(frame) == b"states"
        payload = zstd_payload(partial(windowed_segment, window_log=window_log))
        assert decodes(ZstdCodec(), payload) == is_good


def test_a_bomb_allocates_nothing() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 * 1024 * 1024))
    payload = zstd_payload(lambda _: frame_segment(bomb))
    tracemalloc.start()
    try:
        assert not decodes(ZstdCodec(), payload)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1024 * 1024


def test_scales_beyond_any_values_are_refused() -> None:
    payload = bytearray(Int8Codec().encode(STATES))
    for bits in (0x7F80, 0x7FC0, 0xFF80, 0x7000, 0xF000):
        struct.pack_into("<H", payload, HEADER_BYTES, bits)
        with pytest.raises(PayloadError, match="scale"):
            decoded(Int8Codec(), bytes(payload), STATES)


def test_a_body_of_another_length_is_refused() -> None:
    for codec in CODECS:
        if codec.name in {"int8", "int3"}:
            for change in (-1, 1):
                body = codec.encode(STATES)[HEADER_BYTES:]
                body = body[:change] if change < 0 else body + b"\0"
                start = bytearray(codec.encode(STATES)[:HEADER_BYTES])
                struct.pack_into("<I", start, HEADER_BYTES - 8, len(body))
                with pytest.raises(PayloadError, match="scales and codes"):
                    decoded(codec, bytes(start) + body, STATES)
