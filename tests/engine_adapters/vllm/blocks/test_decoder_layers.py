import pytest
from torch import nn

from engine_adapters.vllm.blocks.decoder_layers import LayerShapeError, decoder_layers


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Identity()


class Layer(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.input_layernorm = nn.Identity()
        self.self_attn = attention


def model_of(*layers: nn.Module) -> nn.Module:
    model = nn.Module()
    model.model = nn.Module()
    model.model.layers = nn.ModuleList(layers)
    return model


def test_layers_are_those_of_the_inner_model() -> None:
    layers = [Layer(Attention()), Layer(Attention())]
    assert decoder_layers(model_of(*layers)) == layers


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(1, 1), "Linear has no model.layers"),
        (model_of(), "Module has no model.layers"),
        (model_of(Layer(nn.Identity())), "no input_layernorm and self_attn.attn"),
        (model_of(Layer(Attention()), nn.Identity()), "no input_layernorm and self_attn.attn"),
    ],
)
def test_other_models_are_told_apart(model: nn.Module, words: str) -> None:
    with pytest.raises(LayerShapeError, match=words):
        decoder_layers(model)
