"""The model of a server: its name, its tokenizer, the template of its chats."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.server.protocol.chat_template import ChatTemplate

CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A prompt and its answer have at most ``window_tokens``; conversations are cut there."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate
    window_tokens: int
    created_s: int


def read_template(directory: Path) -> ChatTemplate:
    """The template of a checkpoint, or the default one where it has none; raises ModelError."""
    fields = _config_fields(directory / CONFIG_FILE)
    special = {name: _token_text(fields.get(name)) for name in SPECIAL_TOKENS}
    path = directory / TEMPLATE_FILE
    try:
        source = path.read_text(encoding="utf-8") if path.is_file() else _source(fields)
        return ChatTemplate(source, special)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot use the chat template of {directory}: {error}") from error


def _config_fields(path: Path) -> Mapping[str, object]:
    if not path.is_file():
        return {}
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{path} must hold a JSON object")
    return fields


def _source(fields: Mapping[str, object]) -> str | None:
    """The template in the configuration; of several the one named default."""
    found = fields.get("chat_template")
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise ValueError("chat_template must be a text")
    return found


def _token_text(value: object) -> str:
    """Checkpoints have a token as its text, or as an object with it; empty where there is none."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
