import json
from base64 import b64encode
from dataclasses import replace

import pytest

from kvstored.cli.sequence_file.contents import (
    FileChunk,
    FileHeader,
    chunk_bytes,
    chunk_of,
    end_bytes,
    header_bytes,
    header_of,
)
from kvstored.cli.sequence_file.frames import FileDamagedError
from kvstored_contract.layout import LayerState, StateKind, StateLayout

LAYERS = (LayerState(StateKind.KV, 16), LayerState(StateKind.HIDDEN, 8))
LAYOUT = StateLayout(model="m", dtype="float32", layers=LAYERS, chunk_tokens=4)
ENCODED = replace(LAYOUT, codec="zstd")
HEADER = FileHeader(name="chat", namespace="team", layout=LAYOUT, chunk_count=3)
CHUNK = FileChunk(key=b"k" * 32, token_count=4, slice_bytes=(64, 32), states=bytes(range(96)))


def test_a_header_comes_back() -> None:
    assert header_of(header_bytes(HEADER)) == HEADER


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        json.dumps({"layout": "!", "sequence": "", "namespace": "", "chunk_count": 1}).encode(),
        json.dumps({"layout": b64encode(b"\xff").decode(), "chunk_count": 1}).encode(),
    ],
)
def test_what_is_no_header(raw: bytes) -> None:
    with pytest.raises(FileDamagedError, match="header"):
        header_of(raw)


def test_a_chunk_comes_back() -> None:
    assert chunk_of(chunk_bytes(CHUNK), LAYOUT) == CHUNK
    short = replace(CHUNK, slice_bytes=(10, 0), states=b"0123456789")
    assert chunk_of(chunk_bytes(short), ENCODED) == short


@pytest.mark.parametrize(
    "chunk",
    [
        replace(CHUNK, slice_bytes=(64,)),
        replace(CHUNK, slice_bytes=(32, 64)),
        replace(CHUNK, states=CHUNK.states[:-1]),
        replace(CHUNK, states=CHUNK.states + b"0"),
        replace(CHUNK, token_count=3),
    ],
)
def test_chunks_that_do_not_fit_their_layout(chunk: FileChunk) -> None:
    with pytest.raises(FileDamagedError, match="layout"):
        chunk_of(chunk_bytes(chunk), LAYOUT)


def test_a_chunk_that_is_cut() -> None:
    for length in (0, 39, 44):
        with pytest.raises(FileDamagedError, match="layout"):
            chunk_of(chunk_bytes(CHUNK)[:length], LAYOUT)


def test_the_end_names_every_chunk() -> None:
    assert len({end_bytes([]), end_bytes([1]), end_bytes([1, 2]), end_bytes([2, 1])}) == 4
