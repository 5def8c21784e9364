import pytest

from benchmarks.gpu.layer_fit import Fit, Room, layers_that_fit, on_device_bytes, stored_bytes
from benchmarks.gpu.shapes import LLAMA_2_7B, LLAMA_3_8B, OPT_13B

TB = 10**12
PLENTY = {"device_bytes": TB, "host_bytes": TB, "scratch_bytes": TB, "saved_bytes": TB}


@pytest.mark.parametrize(
    ("shape", "billions", "hidden_bytes", "kv_bytes"),
    [(LLAMA_2_7B, 6.5, 8192, 16384), (LLAMA_3_8B, 7.0, 8192, 4096), (OPT_13B, 12.6, 10240, 20480)],
)
def test_shapes_are_those_of_the_published_models(
    shape: object, billions: float, hidden_bytes: int, kv_bytes: int
) -> None:
    """Weights of all layers without embeddings, and states of a token in a layer."""
    layer = LLAMA_2_7B if shape is LLAMA_2_7B else shape
    assert (layer.hidden_bytes, layer.kv_bytes) == (hidden_bytes, kv_bytes)  # type: ignore[attr-defined]
    parameters = layer.layer_count * layer.weight_bytes / 2e9  # type: ignore[attr-defined]
    assert parameters == pytest.approx(billions, rel=0.02)


def test_a_machine_with_room_has_all_layers() -> None:
    fit = layers_that_fit(LLAMA_2_7B, Room(**PLENTY), token_count=32768)
    assert fit == Fit(layer_count=32, limited_by="")


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ("device_bytes", "the device's memory"),
        ("host_bytes", "the host's memory"),
        ("scratch_bytes", "the scratch folder"),
        ("saved_bytes", "the time to save"),
    ],
)
def test_what_is_scarce_limits_the_layers(field: str, what: str) -> None:
    """Three layers and a half fit into what is scarce, or not even one."""
    layer = on_device_bytes if field == "device_bytes" else stored_bytes
    one = layer(OPT_13B, 4096)
    for layers, count in ((3.5, 3), (0.9, 0)):
        room = Room(**{**PLENTY, field: int(layers * one)})
        assert layers_that_fit(OPT_13B, room, token_count=4096) == Fit(
            layer_count=count, limited_by=what
        )


def test_room_for_every_division_is_counted() -> None:
    """Keys and values, hidden states, and two divisions of the larger of both."""
    assert stored_bytes(LLAMA_2_7B, 1000) >= 1000 * (16384 + 8192 + 2 * 16384)
    assert stored_bytes(LLAMA_3_8B, 1000) >= 1000 * (4096 + 8192 + 2 * 8192)


def test_smaller_layers_have_as_many_heads() -> None:
    small = LLAMA_3_8B.smaller(16)
    assert (small.hidden_size, small.head_count, small.kv_head_count) == (256, 32, 8)
    assert small.kv_bytes * 16 == LLAMA_3_8B.kv_bytes * 2
    assert small.config(layer_count=2, position_count=8).dtype == "float32"
