"""What heads that stand in first weights are made of."""

import math

import torch
from torch import Tensor

from benchmarks.training.network import NetworkShape
from engine_adapters.runner.model.rotary import RotaryConfig, inverse_frequencies

TURN_MAX = 2.0
"""Radians. Matches are compared in dimensions that turn no further over all positions."""


def turns_of(shape: NetworkShape) -> Tensor:
    """Radians that the pairs of dimensions of a head turn by from one position to the next."""
    return inverse_frequencies(RotaryConfig(theta=shape.theta), shape.head_dim)


def slow_dimensions(shape: NetworkShape) -> list[int]:
    """Of a head, those that turn by at most TURN_MAX radians over all positions, ascending."""
    turns = turns_of(shape)
    pairs = (turns * shape.position_count <= TURN_MAX).nonzero().flatten().tolist()
    return [*pairs, *(pair + shape.head_dim // 2 for pair in pairs)]


def look_back(shape: NetworkShape, distance: int, *, nats: float) -> tuple[Tensor, Tensor]:
    """A query and a key, the same for all tokens: they meet ``distance`` positions apart.

    There the score is higher by ``nats`` than next to it. Of each pair of dimensions that turns by
    w a position, keys have (a, 0), and queries the same turned back: the score of a token d places
    before is the sum of a^2 cos(w (d - k)).
    """
    turns, size = turns_of(shape), shape.head_dim
    lead = float((1 - turns.cos()).sum()) / math.sqrt(size)
    height = math.sqrt(nats / lead)
    back = -distance * turns
    query = height * torch.cat((back.cos(), back.sin()))
    return query, height * (torch.arange(size) < size // 2).float()


def orthonormal(columns: Tensor) -> Tensor:
    """Columns of length 1, each orthogonal to all others, that span the same."""
    result: Tensor = torch.linalg.qr(columns).Q
    return result
