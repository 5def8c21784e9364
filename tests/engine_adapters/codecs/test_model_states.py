"""How small the states of a model become: the runner's random one, in keys, values and hidden."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine_adapters.codecs.registry import codec_of_layer
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.model.tokenizer import Tokenizer
from tests.engine_adapters.codecs.states import decoded

SHAPE = RandomModelShape(
    vocab_size=400,
    hidden_size=256,
    intermediate_size=256,
    layer_count=6,
    head_count=8,
    kv_head_count=4,
)
CHUNK_TOKENS = 64
CHUNK_COUNT = 2
TEXT = Path(__file__).read_text(encoding="utf-8")


class StateKeeper(NullSink):
    """Keeps the states of one step, by layer."""

    def __init__(self) -> None:
        self.kv: list[Tensor] = []
        self.hidden: list[Tensor] = []

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        assert layer == len(self.kv)
        self.kv.append(torch.stack((keys, values)))
        self.hidden.append(hidden.clone())


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> StateKeeper:
    directory = tmp_path_factory.mktemp("model")
    write_random_model(directory, SHAPE, [TEXT])
    model = Model.from_directory(directory)
    token_count = CHUNK_TOKENS * CHUNK_COUNT
    token_ids = Tokenizer.from_directory(directory).encode(TEXT)[:token_count]
    assert len(token_ids) == token_count
    segment = Segment(
        request_id=0, first_row=0, token_count=token_count, first_position=0, first_slot=0
    )
    keeper = StateKeeper()
    model.forward(
        token_ids, [segment], cache=model.make_cache(token_count), sink=keeper, logit_rows=[]
    )
    return keeper


def slices_of(states: StateKeeper, kind: str, dtype: torch.dtype) -> list[tuple[int, Tensor]]:
    """(layer, slice) of every chunk."""
    layers = states.kv if kind == "kv" else states.hidden
    return [
        (layer, part.to(dtype))
        for layer, whole in enumerate(layers)
        for part in whole.split(CHUNK_TOKENS, dim=1 if kind == "kv" else 0)
    ]


def bits_a_value(name: str, slices: list[tuple[int, Tensor]]) -> float:
    total_bytes = sum(
        len(codec_of_layer(name, layer=layer, layer_count=SHAPE.layer_count).encode(part))
        for layer, part in slices
    )
    return 8 * total_bytes / sum(part.numel() for _, part in slices)


@pytest.mark.parametrize("kind", ["kv", "hidden"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_sizes(states: StateKeeper, kind: str, dtype: torch.dtype) -> None:
    slices = slices_of(states, kind, dtype)
    assert len(slices) == SHAPE.layer_count * CHUNK_COUNT
    raw_bits = 8 * dtype.itemsize
    sizes = {name: bits_a_value(name, slices) for name in ("zstd", "int8", "int3", "cachegen")}
    assert sizes["zstd"] < 0.92 * raw_bits
    assert 8 < sizes["int8"] < 8.4
    assert 3 < sizes["int3"] < 3.7
    assert 2 < sizes["cachegen"] < sizes["int3"]


@pytest.mark.parametrize("kind", ["kv", "hidden"])
def test_errors_are_small(states: StateKeeper, kind: str) -> None:
    """Relative to the deviation of the states themselves; coarser codecs lose more."""
    errors = {}
    for name in ("int8", "int3", "cachegen"):
        lost, whole = 0.0, 0.0
        for layer, part in slices_of(states, kind, torch.float32):
            codec = codec_of_layer(name, layer=layer, layer_count=SHAPE.layer_count)
            difference = decoded(codec, codec.encode(part), part) - part
            lost += difference.square().sum().item()
            whole += part.square().sum().item()
        errors[name] = (lost / whole) ** 0.5
    assert 0 < errors["int8"] < 0.01 < errors["int3"] < 0.25
    assert errors["int3"] < errors["cachegen"] < 0.5


def test_early_layers_are_finer(states: StateKeeper) -> None:
    parts = slices_of(states, "kv", torch.float32)
    sizes = [
        bits_a_value("cachegen", [item for item in parts if item[0] in layers])
        for layers in ((0, 1), (2, 3), (4, 5))
    ]
    assert sizes[0] > sizes[1] + 0.4 > sizes[2] + 0.8
