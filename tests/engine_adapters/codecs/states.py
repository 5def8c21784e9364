"""Slices to encode, and what quantisers of the codecs must not exceed."""

from collections.abc import Callable
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st
from torch import Tensor

from engine_adapters.codecs.codec import Codec
from engine_adapters.codecs.registry import CODEC_NAMES, codec_of_layer
from engine_adapters.codecs.slice_shape import DTYPES
from engine_adapters.codecs.values import MAGNITUDE_MAX
from tests.support.seeds import drawn

LAYER_COUNT = 3
CODECS = [
    codec_of_layer(name, layer=layer, layer_count=LAYER_COUNT)
    for name in CODEC_NAMES
    for layer in range(LAYER_COUNT if name == "cachegen" else 1)
]
LOSSY = [codec for codec in CODECS if not codec.is_lossless]
LOSSLESS = [codec for codec in CODECS if codec.is_lossless]

SHAPES = [
    (2, 64, 8, 64),
    (2, 64, 2, 128),
    (2, 1, 3, 5),
    (2, 15, 7, 24),
    (2, 16, 1, 80),
    (2, 17, 3, 33),
    (2, 100, 3, 13),
    (2, 1, 1, 1),
    (64, 512),
    (33, 97),
    (1, 130),
    (1, 1),
]


def codec_id(codec: Codec) -> str:
    """A name for a parametrised test."""
    return repr(codec)


def randomised(examples: int, **strategies: st.SearchStrategy[Any]) -> Callable[..., Any]:
    """Runs a test with arguments drawn from the project's seed."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        given = hypothesis.given(**strategies)(test)
        settings = hypothesis.settings(max_examples=examples, database=None)
        return hypothesis.seed(drawn())(settings(given))

    return decorate


def model_like(shape: tuple[int, ...], dtype: torch.dtype, *, number: int = 0) -> Tensor:
    """Normal values with a scale and an offset for each channel, as keys and values have."""
    generator = torch.Generator().manual_seed(number)
    channels = shape[-1]
    scales = torch.rand(channels, generator=generator) * 2 + 0.1
    offsets = torch.randn(channels, generator=generator)
    return (torch.randn(shape, generator=generator) * scales + offsets).to(dtype)


def any_bits(shape: tuple[int, ...], dtype: torch.dtype, *, number: int = 0) -> Tensor:
    """Values of any bits: NaN of every kind, infinities, denormal numbers."""
    generator = torch.Generator().manual_seed(number)
    octets = torch.randint(256, (*shape, dtype.itemsize), dtype=torch.uint8, generator=generator)
    return octets.view(dtype).reshape(shape)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Small kv and hidden shapes with odd counts, tokens of one and of several groups."""
    tokens = draw(st.integers(1, 70) | st.sampled_from([1, 15, 16, 17, 64, 65, 130]))
    if draw(st.booleans()):
        return 2, tokens, draw(st.integers(1, 3)), draw(st.integers(1, 70))
    return tokens, draw(st.integers(1, 150))


@st.composite
def finite_states(draw: st.DrawFn) -> Tensor:
    """States that every codec takes: of any magnitude, flat, with outliers, constant."""
    shape, dtype = draw(shapes()), draw(st.sampled_from(DTYPES))
    limit = min(MAGNITUDE_MAX, torch.finfo(dtype).max)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    spread, offset = draw(st.sampled_from([0.0, 1e-42, 1e-8, 0.02, 1.0, 300.0, limit])), 0.0
    if draw(st.booleans()):
        offset = draw(st.floats(-1, 1, width=32)) * draw(st.sampled_from([1e-40, 1.0, limit]))
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * spread + offset
    if draw(st.booleans()):
        places = torch.rand(shape, generator=generator) < 0.05
        values[places] *= draw(st.sampled_from([30.0, 1e6, 1e12]))
    return values.clamp(-limit, limit).to(dtype)


def decoded(codec: Codec, payload: bytes, like: Tensor) -> Tensor:
    """What ``payload`` decodes to, in the shape and dtype of ``like``."""
    out = torch.full(like.shape, 7.0, dtype=like.dtype)
    codec.decode(payload, out)
    return out


def bfloat16_above(values: Tensor) -> Tensor:
    """The smallest bfloat16 that is not below positive float32 ``values``, as float32."""
    nearest = values.to(torch.bfloat16)
    is_below = (nearest.to(torch.float32) < values).to(torch.int16)
    return (nearest.view(torch.int16) + is_below).view(torch.bfloat16).to(torch.float32)


def rounding(states: Tensor) -> Tensor:
    """Half a unit in the last place of ``states``' dtype, and a little for float32 itself."""
    finfo = torch.finfo(states.dtype)
    magnitudes = states.to(torch.float64).abs()
    smallest = finfo.smallest_normal * finfo.eps
    return magnitudes * (finfo.eps / 2 + 2**-21) * 1.01 + smallest
