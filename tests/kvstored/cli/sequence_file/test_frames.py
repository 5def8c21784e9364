import pytest
import xxhash
import zstandard

from kvstored.cli.sequence_file.frames import (
    HEAD,
    MAGIC,
    START,
    FileDamagedError,
    FrameHead,
    FrameKind,
    check_start,
    packed_frame,
    parsed_head,
    unpacked_frame,
)


def parts(frame: bytes) -> tuple[FrameHead, bytes]:
    return parsed_head(frame[: HEAD.size]), frame[HEAD.size :]


def forged(number: int, raw_bytes: int, packed: bytes) -> FrameHead:
    """The head of a frame whose checksum matches."""
    kind = FrameKind.CHUNK
    prefix = number.to_bytes(8, "little") + kind.to_bytes(4, "little")
    checksum = xxhash.xxh3_64_intdigest(prefix + raw_bytes.to_bytes(4, "little") + packed)
    return FrameHead(kind, raw_bytes, len(packed), checksum)


def test_a_frame_comes_back() -> None:
    for raw in (b"", b"states" * 1000):
        head, packed = parts(packed_frame(7, FrameKind.CHUNK, raw))
        assert (head.kind, head.raw_bytes) == (FrameKind.CHUNK, len(raw))
        assert unpacked_frame(7, head, packed) == raw
        with pytest.raises(FileDamagedError, match="checksum"):
            unpacked_frame(8, head, packed)
        with pytest.raises(FileDamagedError, match="cut"):
            unpacked_frame(7, head, packed[:-1])


def test_forged_frames_are_refused() -> None:
    with pytest.raises(FileDamagedError, match="frame 3 is damaged"):
        unpacked_frame(3, forged(3, 10, b"no zstd"), b"no zstd")
    packed = zstandard.ZstdCompressor().compress(b"four")
    assert unpacked_frame(3, forged(3, 4, packed), packed) == b"four"
    with pytest.raises(FileDamagedError, match="another length"):
        unpacked_frame(3, forged(3, 5, packed), packed)


@pytest.mark.parametrize(
    "head",
    [
        HEAD.pack(9, 1, 1, 0, 0),
        HEAD.pack(FrameKind.CHUNK, 1, 1, 1, 0),
        HEAD.pack(FrameKind.CHUNK, 2**31, 1, 0, 0),
        HEAD.pack(FrameKind.CHUNK, 1, 2**31, 0, 0),
    ],
)
def test_heads_that_cannot_be(head: bytes) -> None:
    with pytest.raises(FileDamagedError, match="head"):
        parsed_head(head)


def test_a_head_that_is_cut() -> None:
    with pytest.raises(FileDamagedError, match="cut"):
        parsed_head(bytes(HEAD.size - 1))


def test_starts() -> None:
    check_start(START)
    for start in (b"", START[:-1], b"x" * len(START)):
        with pytest.raises(FileDamagedError, match="no exported sequence"):
            check_start(start)
    with pytest.raises(FileDamagedError, match="version 9"):
        check_start(MAGIC + (9).to_bytes(4, "little"))
