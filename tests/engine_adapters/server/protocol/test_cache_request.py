from typing import Any

import pytest

from engine_adapters.server.protocol.cache_request import CacheRequest, read_cache_request
from engine_adapters.server.protocol.chat_request import Message, TextPart
from tests.engine_adapters.server.protocol.bodies import body, refused


def test_a_cache_is_made_of_text() -> None:
    asked = read_cache_request(body(model="m", text="a b", ttl_s=60))
    assert asked == CacheRequest(model="m", text="a b", messages=(), ttl_s=60)


def test_or_of_messages() -> None:
    asked = read_cache_request(body(model="m", messages=[{"role": "user", "content": "a"}]))
    messages = (Message("user", (TextPart("a"),)),)
    assert asked == CacheRequest(model="m", text=None, messages=messages, ttl_s=None)


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({}, "messages"),
        ({"text": "a", "messages": []}, "messages"),
        ({"text": ""}, "text"),
        ({"text": "a", "ttl_s": 0}, "ttl_s"),
        ({"text": "a", "model": None}, "model"),
        ({"text": "a", "name": "b"}, "name"),
    ],
)
def test_anything_else_is_named(fields: dict[str, Any], parameter: str) -> None:
    assert refused(lambda: read_cache_request(body(**{"model": "m", **fields})))[0] == parameter
