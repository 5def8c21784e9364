from typing import Any

import pytest

from engine_adapters.server.protocol.chat_request import (
    CachePart,
    ChatRequest,
    Message,
    TextPart,
    read_chat_request,
)
from engine_adapters.server.protocol.limits import Limits
from tests.engine_adapters.server.protocol.bodies import body, refused

CACHE = {"type": "context_cache", "id": "cc-1"}


def read(messages: Any, **fields: Any) -> ChatRequest:
    return read_chat_request(body(model="m", messages=messages, **fields), Limits())


def test_messages_are_read_in_order() -> None:
    request = read(
        [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "Read "}, CACHE]},
        ]
    )
    assert request.messages == (
        Message("system", (TextPart("Be short."),)),
        Message("user", (TextPart("Read "), CachePart("cc-1"))),
    )
    assert request.names_caches


def test_a_conversation_has_no_caches() -> None:
    assert not read([{"role": "user", "content": "a"}], conversation="c").names_caches
    messages = [{"role": "user", "content": [CACHE]}]
    assert refused(lambda: read(messages, conversation="c"))[0] == "conversation"


@pytest.mark.parametrize(
    ("messages", "parameter"),
    [
        (None, "messages"),
        ([], "messages"),
        ("a", "messages"),
        (["a"], "messages[0]"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": "tool", "content": "a"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": "a", "name": "b"}], "messages[0].name"),
        ([{"role": "user", "content": [3]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{**CACHE, "id": ""}]}], "messages[0].content[0].id"),
        ([{"role": "user", "content": [{**CACHE, "a": 1}]}], "messages[0].content[0].a"),
    ],
)
def test_what_is_no_message_is_named(messages: Any, parameter: str) -> None:
    assert refused(lambda: read(messages))[0] == parameter


def test_an_unknown_parameter_is_refused() -> None:
    assert refused(lambda: read([{"role": "user", "content": "a"}], tools=[]))[0] == "tools"
