import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.restore.shapes import LLAMA_13B, SHAPES, ModelShape, shape_of


def test_shapes_by_name_and_by_numbers() -> None:
    assert shape_of("Llama2-13B") is LLAMA_13B
    plain = ModelShape(name="own", layer_count=8, hidden_size=512, kv_size=512)
    assert shape_of("own,8,512") == plain
    grouped = ModelShape(name="own", layer_count=8, hidden_size=512, kv_size=128)
    assert shape_of("own,8,512,128") == grouped
    assert (grouped.hidden_bytes, grouped.kv_bytes) == (1024, 512)
    assert shape_of("own,8,512,512,4").gpu_count == 4


@pytest.mark.parametrize(
    "text", ["", "own", "own,8", "own,8,0", "own,8,-1", "own,8,x", "o,1,2,3,4,5"]
)
def test_what_is_no_model(text: str) -> None:
    with pytest.raises(BenchmarkError) as error:
        shape_of(text)
    assert all(word in str(error.value) for word in (repr(text), *SHAPES, "LAYERS"))
