"""The GPUs and models of Cake's evaluation (section 5.1, table 1) by their public data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """What one server computes with; ``memory_bytes_per_s`` is the data sheet's, of all GPUs."""

    name: str
    memory_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """``token_bytes`` of keys and values at 16 bits is table 1's, the rest the published model.

    ``attention_width`` is heads times their size: what one layer's queries are wide.
    """

    name: str
    layer_count: int
    parameter_count: float
    weight_bytes: float
    token_bytes: int
    attention_width: int

    @property
    def token_flop(self) -> float:
        """Of a token without attention: a multiplication and an addition for each parameter."""
        return 2 * self.parameter_count

    @property
    def attention_flop(self) -> float:
        """Of a token for each token before it: scores and their sum of values."""
        return 4 * self.layer_count * self.attention_width


KIB = 1024

A100 = Gpus(name="A100", memory_bytes_per_s=2.039e12)
TWO_A100 = Gpus(name="2xA100", memory_bytes_per_s=2 * 2.039e12)
H100 = Gpus(name="H100", memory_bytes_per_s=3.35e12)
GPUS_BY_NAME = {gpus.name: gpus for gpus in (A100, TWO_A100, H100)}

LONG_ALPACA_7B = Model(
    name="LongAlpaca-7B",
    layer_count=32,
    parameter_count=6.74e9,
    weight_bytes=2 * 6.74e9,
    token_bytes=512 * KIB,
    attention_width=4096,
)
LONG_ALPACA_13B = Model(
    name="LongAlpaca-13B",
    layer_count=40,
    parameter_count=13.02e9,
    weight_bytes=2 * 13.02e9,
    token_bytes=800 * KIB,
    attention_width=5120,
)
LLAMA_8B = Model(
    name="Llama3.1-8B",
    layer_count=32,
    parameter_count=8.03e9,
    weight_bytes=2 * 8.03e9,
    token_bytes=128 * KIB,
    attention_width=4096,
)
LLAMA_70B = Model(
    name="Llama3.1-70B",
    layer_count=80,
    parameter_count=70.6e9,
    weight_bytes=70.6e9,
    token_bytes=320 * KIB,
    attention_width=8192,
)
"""Weights in FP8 (section 5.1)."""
