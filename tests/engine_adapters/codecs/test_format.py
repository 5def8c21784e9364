"""The bytes of slices too small to be compressed: what was stored must stay readable."""

import pytest
import torch

from engine_adapters.codecs.registry import codec_of_layer
from tests.engine_adapters.codecs.states import decoded

KV = torch.tensor([[1.0, -2.0], [3.0, 0.5], [0.0, 0.0], [4.0, 4.0]]).view(2, 2, 1, 2)
HIDDEN = torch.full((1, 3), 1.0, dtype=torch.bfloat16)

# Magic, codec, version, dtype, dims; then the length of the body.
FORMATS = {
    "zstd": (
        HIDDEN,
        """
        4b564344 01 01 01 02 01000000 03000000 00000000 00000000 16000000 00000000
        00000000 03000000 3f3f3f  00000000 03000000 808080
        """,
    ),
    "int8": (
        KV,
        """
        4b564344 02 01 00 04 02000000 02000000 01000000 02000000 10000000 00000000
        823c c23c 8000 023d  3f82 7f15 0000 7e7e
        """,
    ),
    "int8 of zeros": (
        HIDDEN.half() * 0,
        """
        4b564344 02 01 02 02 01000000 03000000 00000000 00000000 05000000 00000000
        8000  000000
        """,
    ),
    "int3": (
        KV,
        """
        4b564344 03 01 00 04 02000000 02000000 01000000 02000000 28000000 00000000
        00c0 003f  dc3e b73e  0000 8040  8000 8000
        0300030000000000 0000000000000000 0400040000000000
        """,
    ),
    "int3 of a constant": (
        HIDDEN,
        """
        4b564344 03 01 01 02 01000000 03000000 00000000 00000000 1c000000 00000000
        803f 8000  0000000000000000 0000000000000000 0000000000000000
        """,
    ),
    "cachegen": (
        KV,
        """
        4b564344 04 01 00 04 02000000 02000000 01000000 02000000 48000000 00000000
        00000000 02000000 3c00  00000000 02000000 8280  00000000 04000000 3f820000
        00000000 04000000 3f3f4040  00000000 04000000 81a00000
        00000000 08000000 7979797977777777
        """,
    ),
}


@pytest.mark.parametrize("case", FORMATS)
def test_bytes(case: str) -> None:
    states, text = FORMATS[case]
    codec = codec_of_layer(case.split(maxsplit=1)[0], layer=0, layer_count=3)
    stored = bytes.fromhex(text)
    assert codec.encode(states).hex() == stored.hex()
    assert ((decoded(codec, stored, states) - states).abs() <= 0.25).all()


def test_raw_bytes() -> None:
    assert codec_of_layer("raw", layer=0, layer_count=1).encode(HIDDEN).hex() == "803f" * 3
