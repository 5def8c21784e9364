import pytest
import torch

from engine_adapters.codecs.anchors import ANCHOR_TOKENS, AnchorGroups


@pytest.mark.parametrize("token_count", [1, 2, 15, 16, 17, 31, 32, 40])
def test_anchors_and_differences_make_the_tokens_again(token_count: int) -> None:
    groups = AnchorGroups(token_count)
    generator = torch.Generator().manual_seed(token_count)
    values = torch.randint(-50, 50, (2, token_count, 5), generator=generator).float()
    anchors = groups.anchors(values)
    assert anchors.shape[1] == groups.anchor_count
    others = [token for token in range(token_count) if token % ANCHOR_TOKENS]
    nearest = [token // ANCHOR_TOKENS for token in others]
    differences = groups.differences(values, anchors)
    assert differences.shape[1] == groups.difference_count == len(others)
    assert torch.equal(differences, values[:, others] - anchors[:, nearest])
    steps = torch.tensor([[1.0, 2, 4, 8, 16], [0.5, 1, 2, 4, 8]])
    codes = torch.randint(-7, 8, differences.shape, generator=generator, dtype=torch.int8)
    out = torch.full_like(values, float("nan"))
    groups.dequantise(codes, steps, anchors, out)
    assert torch.equal(out[:, ::ANCHOR_TOKENS], anchors)
    assert torch.equal(out[:, others], anchors[:, nearest] + codes * steps[:, None])
