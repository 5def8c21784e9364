"""Rotary position embedding: frequencies with scaling, and the rotation itself.

The angles of every position are computed once into a table. A key that is stored
unrotated and rotated again on load therefore meets the very same cosines as the
first time, whatever the shapes of the two rotations.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """Positions divided by ``factor``."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3.1: long wavelengths divided by ``factor``, short ones kept, a ramp between them."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryConfig:
    """Base of the frequencies and their scaling (None: unscaled)."""

    theta: float
    scaling: LinearScaling | Llama3Scaling | None = None


def inverse_frequencies(config: RotaryConfig, head_dim: int) -> Tensor:
    """Radians per position of each pair of dimensions: shape [head_dim / 2], float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (config.theta**exponents)
    if config.scaling is None:
        return frequencies
    if isinstance(config.scaling, LinearScaling):
        return frequencies / config.scaling.factor
    return _scale_llama3(frequencies, config.scaling)


def _scale_llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    wavelengths = 2 * math.pi / frequencies
    low_wavelength = scaling.original_positions / scaling.low_frequency_factor
    high_wavelength = scaling.original_positions / scaling.high_frequency_factor
    width = scaling.high_frequency_factor - scaling.low_frequency_factor
    ramp = (scaling.original_positions / wavelengths - scaling.low_frequency_factor) / width
    slowed = frequencies / scaling.factor
    blended = (1 - ramp) * slowed + ramp * frequencies
    scaled = torch.where(wavelengths > low_wavelength, slowed, frequencies)
    is_between = (wavelengths <= low_wavelength) & (wavelengths >= high_wavelength)
    return torch.where(is_between, blended, scaled)


@dataclass(frozen=True, slots=True)
class Angles:
    """Cosines and sines, each of shape [tokens, 1, head_dim / 2]; they broadcast over heads."""

    cosines: Tensor
    sines: Tensor

    def by_chunk(self, chunk_count: int) -> "Angles":
        """The same angles as views of shape [chunks, chunk_tokens, 1, head_dim / 2]."""
        shape = (chunk_count, -1, *self.cosines.shape[1:])
        return Angles(self.cosines.view(shape), self.sines.view(shape))


class RotaryTable:
    """Angles of positions 0 to ``position_count`` - 1. Immutable: threads may share it."""

    def __init__(
        self,
        config: RotaryConfig,
        *,
        head_dim: int,
        position_count: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        positions = torch.arange(position_count, dtype=torch.float32)
        radians = torch.outer(positions, inverse_frequencies(config, head_dim)).unsqueeze(1)
        self._cosines = radians.cos().to(device=device, dtype=dtype)
        self._sines = radians.sin().to(device=device, dtype=dtype)

    def at(self, positions: Tensor) -> Angles:
        """Angles of ``positions`` (shape [tokens], int64)."""
        return Angles(self._cosines[positions], self._sines[positions])

    def between(self, first: int, stop: int) -> Angles:
        """Angles of positions ``first`` to ``stop`` - 1, without a copy."""
        return Angles(self._cosines[first:stop], self._sines[first:stop])


def rotate_in_place(vectors: Tensor, angles: Angles) -> None:
    """As ``rotate``, to the bit, with half as much memory besides ``vectors``."""
    half = vectors.shape[-1] // 2
    first, second = vectors[..., :half], vectors[..., half:]
    before = first.clone()
    first.mul_(angles.cosines).addcmul_(second, angles.sines, value=-1)
    second.mul_(angles.cosines).addcmul_(before, angles.sines)


def rotate(vectors: Tensor, angles: Angles, *, out: Tensor | None = None) -> Tensor:
    """Rotates each pair (i, i + head_dim / 2) of ``vectors`` by the angle of its token.

    ``vectors`` has shape [tokens, heads, head_dim], or [chunks, tokens, heads, head_dim]
    with angles ``by_chunk``, and the dtype of the angles. The result has the same shape;
    ``out`` receives it when given and must not alias ``vectors``.
    """
    rotated = torch.empty_like(vectors) if out is None else out
    half = vectors.shape[-1] // 2
    first, second = vectors[..., :half], vectors[..., half:]
    torch.mul(first, angles.cosines, out=rotated[..., :half])
    torch.mul(second, angles.cosines, out=rotated[..., half:])
    rotated[..., :half].addcmul_(second, angles.sines, value=-1)
    rotated[..., half:].addcmul_(first, angles.sines)
    return rotated
