"""A model's architecture, read from a Hugging Face ``config.json``.

Everything that would change the numbers and is not implemented is refused: a model
that loads is a model whose logits are right.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from engine_adapters.runner.model.config_fields import Fields
from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.llama_config import parse_llama
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.opt_config import parse_opt

PARSERS: Mapping[str, Callable[[Fields], ModelConfig]] = {
    "LlamaForCausalLM": parse_llama,
    "MistralForCausalLM": parse_llama,
    "OPTForCausalLM": parse_opt,
}
"""By the architecture that a config names."""


def read_config(directory: Path) -> ModelConfig:
    """Reads ``config.json`` of a model directory; raises ModelError."""
    path = directory / "config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{path} must hold a JSON object")
    return parse_config(fields)


def parse_config(fields: Fields) -> ModelConfig:
    """Validates the fields of a config; raises ModelError."""
    architectures = fields.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else architectures
    if not isinstance(name, str) or name not in PARSERS:
        raise ModelError(f"architecture {name!r} is not one of {', '.join(PARSERS)}")
    if fields.get("quantization_config") is not None:
        raise ModelError("quantized weights are not supported (quantization_config is set)")
    return PARSERS[name](fields)
