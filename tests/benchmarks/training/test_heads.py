"""Where heads look that stand in first weights."""

import math

import torch

from benchmarks.training.heads import TURN_MAX, look_back, slow_dimensions, turns_of
from benchmarks.training.network import NetworkShape

SHAPE = NetworkShape(
    vocab_size=600,
    hidden_size=128,
    intermediate_size=128,
    layer_count=2,
    head_count=4,
    position_count=128,
)


def test_matches_are_compared_where_positions_hardly_turn() -> None:
    slow = slow_dimensions(SHAPE)
    half = SHAPE.head_dim // 2
    assert slow[: len(slow) // 2] == list(range(half - len(slow) // 2, half))
    assert [number - half for number in slow[len(slow) // 2 :]] == slow[: len(slow) // 2]
    assert 0 < len(slow) < SHAPE.head_dim
    assert float(turns_of(SHAPE)[slow[0]]) * SHAPE.position_count <= TURN_MAX


def test_a_head_looks_so_many_places_back() -> None:
    turns = turns_of(SHAPE)
    for distance in (1, 2, 3):
        query, key = look_back(SHAPE, distance, nats=4.0)

        def score(places: int, query: torch.Tensor = query, key: torch.Tensor = key) -> float:
            """Of a key that stands so many places before the query."""
            first, second = query.chunk(2)
            turned = first * (places * turns).cos() - second * (places * turns).sin()
            return float(turned @ key[: len(turns)]) / math.sqrt(SHAPE.head_dim)

        scores = [score(places) for places in range(10)]
        assert max(range(10), key=scores.__getitem__) == distance
        assert math.isclose(scores[distance] - scores[distance + 1], 4.0, rel_tol=1e-4)
