"""The layers of published models, of which a machine measures as many as it has room for. Pure."""

from dataclasses import dataclass, replace

from engine_adapters.runner.model.model_config import Family, ModelConfig
from engine_adapters.runner.model.opt_config import NORM_EPSILON
from engine_adapters.runner.model.rotary import RotaryConfig

ROTARY_THETA = 500_000.0
VOCABULARY = 4096
"""Not the models' own: embeddings are no part of a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What one layer of a model consists of; ``layer_count`` is that of the whole model."""

    name: str
    family: Family
    layer_count: int
    hidden_size: int
    intermediate_size: int
    head_count: int
    kv_head_count: int
    dtype: str = "bfloat16"

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""
        return self.hidden_size // self.head_count

    @property
    def element_bytes(self) -> int:
        """Of weights and states."""
        return 4 if self.dtype == "float32" else 2

    @property
    def hidden_bytes(self) -> int:
        """Hidden states of one token in one layer."""
        return self.element_bytes * self.hidden_size

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token in one layer."""
        return 2 * self.element_bytes * self.kv_head_count * self.head_dim

    @property
    def weight_bytes(self) -> int:
        """Of one layer, without its norms and biases."""
        attention = 2 * self.hidden_size * (self.hidden_size + self.kv_head_count * self.head_dim)
        matrices = 3 if self.family is Family.LLAMA else 2
        mlp = matrices * self.hidden_size * self.intermediate_size
        return self.element_bytes * (attention + mlp)

    def smaller(self, divisor: int) -> "LayerShape":
        """A divisor-th as wide, with as many heads, in float32: for machines without a GPU."""
        return replace(
            self,
            hidden_size=self.hidden_size // divisor,
            intermediate_size=self.intermediate_size // divisor,
            dtype="float32",
        )

    def config(self, *, layer_count: int, position_count: int) -> ModelConfig:
        """A model of so many of these layers."""
        is_opt = self.family is Family.OPT
        return ModelConfig(
            family=self.family,
            vocab_size=VOCABULARY,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            layer_count=layer_count,
            head_count=self.head_count,
            kv_head_count=self.kv_head_count,
            head_dim=self.head_dim,
            norm_epsilon=NORM_EPSILON,
            position_count=position_count,
            rotary=None if is_opt else RotaryConfig(theta=ROTARY_THETA),
            has_tied_embeddings=is_opt,
            has_attention_bias=is_opt,
            has_mlp_bias=is_opt,
            dtype=self.dtype,
            stop_token_ids=(),
        )


LLAMA_2_7B = LayerShape(
    name="llama_2_7b",
    family=Family.LLAMA,
    layer_count=32,
    hidden_size=4096,
    intermediate_size=11008,
    head_count=32,
    kv_head_count=32,
)
LLAMA_3_8B = LayerShape(
    name="llama_3_8b",
    family=Family.LLAMA,
    layer_count=32,
    hidden_size=4096,
    intermediate_size=14336,
    head_count=32,
    kv_head_count=8,
)
OPT_13B = LayerShape(
    name="opt_13b",
    family=Family.OPT,
    layer_count=40,
    hidden_size=5120,
    intermediate_size=20480,
    head_count=40,
    kv_head_count=40,
)
SHAPES = (LLAMA_2_7B, LLAMA_3_8B, OPT_13B)
