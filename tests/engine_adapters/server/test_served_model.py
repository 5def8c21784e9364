import json
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.runner.model.errors import ModelError
from engine_adapters.server.protocol.chat_request import Message, TextPart
from engine_adapters.server.served_model import read_template

SHOUT = "{{ bos_token }}{{ messages[0].content | upper }}"


def written(directory: Path, **fields: Any) -> Path:
    (directory / "tokenizer_config.json").write_text(json.dumps(fields))
    return directory


def opening(directory: Path) -> object:
    messages = [Message("user", (TextPart("hi"),))]
    return read_template(directory).opening(messages, mark="0123")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "user: hi\nassistant: "),
        ({"chat_template": SHOUT}, "HI"),
        ({"chat_template": SHOUT, "bos_token": "<s>"}, "<s>HI"),
        ({"chat_template": SHOUT, "bos_token": {"content": "<b>"}}, "<b>HI"),
        ({"chat_template": [{"name": "default", "template": SHOUT}]}, "HI"),
        ({"chat_template": [{"name": "rag", "template": SHOUT}]}, "user: hi\nassistant: "),
    ],
)
def test_a_checkpoint_says_how_chats_look(tmp_path: Path, fields: Any, text: str) -> None:
    assert opening(written(tmp_path, **fields)) == [TextPart(text)]


def test_a_file_of_its_own_goes_first(tmp_path: Path) -> None:
    written(tmp_path, chat_template="other")
    (tmp_path / "chat_template.jinja").write_text(SHOUT)
    assert opening(tmp_path) == [TextPart("HI")]


def test_without_any_file_there_is_a_default(tmp_path: Path) -> None:
    assert opening(tmp_path) == [TextPart("user: hi\nassistant: ")]


@pytest.mark.parametrize("fields", [{"chat_template": 3}, {"chat_template": "{% for %}"}])
def test_a_template_that_is_none_is_an_error(tmp_path: Path, fields: Any) -> None:
    with pytest.raises(ModelError, match="cannot use the chat template"):
        read_template(written(tmp_path, **fields))


@pytest.mark.parametrize(("text", "message"), [("{", "cannot read"), ("[]", "JSON object")])
def test_a_file_that_is_broken_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        read_template(tmp_path)
