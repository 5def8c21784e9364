"""The models of the paper, and others by their numbers."""

from dataclasses import dataclass

from benchmarks.benchmark import BenchmarkError

ELEMENT_BYTES = 2
"""FP16."""
_NUMBER_COUNTS = (2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What the cost of restoring depends on.

    ``kv_size`` is the length of a token's keys in one layer: ``hidden_size`` without
    grouped heads. The model runs on ``gpu_count`` GPUs with tensor parallelism.
    """

    name: str
    layer_count: int
    hidden_size: int
    kv_size: int
    gpu_count: int = 1

    @property
    def hidden_bytes(self) -> int:
        """Hidden states of one token in one layer."""
        return ELEMENT_BYTES * self.hidden_size

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token in one layer."""
        return 2 * ELEMENT_BYTES * self.kv_size


LLAMA_7B = ModelShape(name="Llama2-7B", layer_count=32, hidden_size=4096, kv_size=4096)
LLAMA_13B = ModelShape(name="Llama2-13B", layer_count=40, hidden_size=5120, kv_size=5120)
OPT_30B = ModelShape(name="OPT-30B", layer_count=48, hidden_size=7168, kv_size=7168, gpu_count=4)
SHAPES = {shape.name: shape for shape in (LLAMA_7B, LLAMA_13B, OPT_30B)}


def shape_of(text: str) -> ModelShape:
    """A name of the paper, or ``NAME,LAYERS,HIDDEN[,KV[,GPUS]]``; raises BenchmarkError."""
    if text in SHAPES:
        return SHAPES[text]
    name, *words = text.split(",")
    numbers = [int(word) for word in words if word.isdecimal() and int(word)]
    if len(numbers) != len(words) or len(numbers) not in _NUMBER_COUNTS:
        raise BenchmarkError(
            f"{text!r} is no model; name one of {', '.join(SHAPES)}, or give "
            "NAME,LAYERS,HIDDEN with or without ',KV' or ',KV,GPUS'"
        )
    layer_count, hidden_size, *rest = numbers
    return ModelShape(
        name=name,
        layer_count=layer_count,
        hidden_size=hidden_size,
        kv_size=rest[0] if rest else hidden_size,
        gpu_count=rest[1] if len(rest) > 1 else 1,
    )
