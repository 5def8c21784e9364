from typing import Any

import pytest

from engine_adapters.server.protocol.limits import Limits
from engine_adapters.server.protocol.prompt_request import read_prompt_request
from tests.engine_adapters.server.protocol.bodies import body, refused

LIMITS = Limits()


@pytest.mark.parametrize(("prompt", "read"), [("a text", "a text"), ([3, 4], (3, 4))])
def test_a_prompt_is_a_text_or_token_ids(prompt: Any, read: Any) -> None:
    request = read_prompt_request(body(model="m", prompt=prompt, max_tokens=5), LIMITS)
    assert request.prompt == read
    assert request.generation.new_tokens_max == 5


@pytest.mark.parametrize("prompt", [None, "", [], ["a"], [True], [[1]], 3, {}])
def test_another_prompt_is_refused(prompt: Any) -> None:
    read = body(model="m", prompt=prompt)
    assert refused(lambda: read_prompt_request(read, LIMITS))[0] == "prompt"


@pytest.mark.parametrize(("limit", "count"), [(100, 16), (10, 10)])
def test_the_default_length_is_that_of_openai(limit: int, count: int) -> None:
    request = read_prompt_request(body(model="m", prompt="a"), Limits(new_tokens=limit))
    assert request.generation.new_tokens_max == count


def test_an_unknown_parameter_is_refused() -> None:
    read = body(model="m", prompt="a", echo=True)
    assert refused(lambda: read_prompt_request(read, LIMITS))[0] == "echo"
