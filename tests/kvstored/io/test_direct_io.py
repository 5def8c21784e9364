import ctypes
import os
import struct
from pathlib import Path

import pytest

from kvstored.io.direct_io import direct_alignment, parse_alignment


def statx_result(mask: int, memory: int, offset: int) -> bytes:
    result = bytearray(256)
    struct.pack_into("<I", result, 0, mask)
    struct.pack_into("<II", result, 152, memory, offset)
    return bytes(result)


@pytest.mark.parametrize(
    ("mask", "memory", "offset", "alignment"),
    [
        (0x2000, 4, 512, 512),
        (0x27FF, 4096, 512, 4096),
        (0x2000, 512, 16_384, 16_384),
        (0x2000, 0, 0, None),
        (0x2000, 4, 0, None),
        (0x07FF, 0, 0, 4096),
        (0, 0, 0, 4096),
    ],
)
def test_the_stricter_alignment_counts(
    mask: int, memory: int, offset: int, alignment: int | None
) -> None:
    assert parse_alignment(statx_result(mask, memory, offset)) == alignment


def test_asks_the_kernel_about_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    with path.open("rb") as file:
        alignment = direct_alignment(file.fileno())
    assert alignment is None or 4096 % alignment == 0 or alignment % 4096 == 0


def test_a_file_that_cannot_be_asked_gets_the_page_size() -> None:
    with Path(os.devnull).open("rb") as file:
        descriptor = file.fileno()
    assert direct_alignment(descriptor) == 4096


def test_a_c_library_without_statx_gets_the_page_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert direct_alignment(0) == 4096
