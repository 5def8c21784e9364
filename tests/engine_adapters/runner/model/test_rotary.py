import pytest
import torch

from engine_adapters.runner.model.rotary import (
    RotaryConfig,
    RotaryTable,
    rotate,
    rotate_in_place,
)

TABLE = RotaryTable(
    RotaryConfig(theta=100.0),
    head_dim=8,
    position_count=64,
    dtype=torch.float32,
    device=torch.device("cpu"),
)


def test_position_zero_is_the_identity() -> None:
    vectors = torch.randn(1, 3, 8)
    assert torch.equal(rotate(vectors, TABLE.between(0, 1)), vectors)


def test_scores_depend_on_the_distance_only() -> None:
    query, key = torch.randn(1, 1, 8), torch.randn(1, 1, 8)

    def score(query_position: int, key_position: int) -> torch.Tensor:
        rotated = [
            rotate(vector, TABLE.between(position, position + 1))
            for vector, position in ((query, query_position), (key, key_position))
        ]
        return (rotated[0] * rotated[1]).sum()

    assert torch.isclose(score(9, 4), score(45, 40), atol=1e-5)
    assert not torch.isclose(score(9, 4), score(9, 5), atol=1e-3)


def test_every_shape_of_a_rotation_gives_the_same_bits() -> None:
    vectors = torch.randn(64, 2, 8)
    whole = rotate(vectors, TABLE.between(0, 64))
    by_chunk = torch.empty(4, 16, 2, 8)
    rotate(vectors.view(4, 16, 2, 8), TABLE.between(0, 64).by_chunk(4), out=by_chunk)
    single = torch.cat([rotate(vectors[i : i + 1], TABLE.at(torch.tensor([i]))) for i in range(64)])
    assert torch.equal(by_chunk.view(64, 2, 8), whole)
    assert torch.equal(single, whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotation_in_place_gives_the_same_bits(dtype: torch.dtype) -> None:
    table = RotaryTable(
        RotaryConfig(theta=100.0),
        head_dim=8,
        position_count=64,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    vectors = torch.randn(64, 2, 8).to(dtype)
    angles = table.between(0, 64)
    wanted = rotate(vectors, angles)
    # As in a cache: the heads of one token lie together, the tokens apart.
    apart = torch.zeros(64, 4, 8, dtype=dtype)
    apart[:, :2] = vectors
    rotate_in_place(apart[:, :2], angles)
    assert torch.equal(apart[:, :2], wanted)
    assert not apart[:, 2:].any()
