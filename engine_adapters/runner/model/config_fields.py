"""Fields of a Hugging Face ``config.json``, checked one by one. Pure."""

from collections.abc import Mapping

from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.model_config import DTYPES

Fields = Mapping[str, object]


def integer(fields: Fields, name: str, default: int | None = None) -> int:
    """A positive integer; an absent or null field is ``default``. Raises ModelError."""
    value = fields.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"{name} must be a positive integer, not {value!r}")
    return value


def number(fields: Fields, name: str, default: float | None = None) -> float:
    """A positive number; an absent or null field is ``default``. Raises ModelError."""
    value = fields.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ModelError(f"{name} must be a positive number, not {value!r}")
    return float(value)


def flag(fields: Fields, name: str, *, default: bool) -> bool:
    """True or false; an absent field is ``default``. Raises ModelError."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise ModelError(f"{name} must be true or false, not {value!r}")
    return value


def dtype_name(fields: Fields) -> str:
    """The dtype of the weights by its newer or older name. Raises ModelError."""
    dtype = fields.get("dtype") or fields.get("torch_dtype") or "float32"
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return str(dtype)


def stop_tokens(fields: Fields, default: int | None = None) -> tuple[int, ...]:
    """Token ids that end a text; an absent field is ``default``. Raises ModelError."""
    value = fields.get("eos_token_id", default)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) for token in values):
        raise ModelError(f"eos_token_id must be a token id or a list of them, not {value!r}")
    return tuple(values)
