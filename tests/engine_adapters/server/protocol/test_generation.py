from typing import Any

import pytest

from engine_adapters.server.protocol.fields import Fields
from engine_adapters.server.protocol.generation import Generation, read_generation
from engine_adapters.server.protocol.limits import Limits
from tests.engine_adapters.server.protocol.bodies import refused

LIMITS = Limits(new_tokens=100, stops=2, stop_characters=5)


def read(**fields: Any) -> Generation:
    return read_generation(Fields({"model": "m", **fields}), LIMITS)


def test_defaults_are_those_of_openai() -> None:
    assert read() == Generation(
        model="m",
        new_tokens_max=None,
        temperature=1.0,
        top_p=1.0,
        seed=None,
        stops=(),
        is_streamed=False,
        reports_usage=False,
        conversation=None,
        method="attnlink-16",
    )


def test_everything_can_be_said() -> None:
    assert read(
        n=1,
        max_tokens=7,
        temperature=0,
        top_p=0.5,
        seed=-3,
        stop=["a", "bcdef"],
        stream=True,
        stream_options={"include_usage": True},
        conversation="talk",
        link_method="naive",
    ) == Generation(
        model="m",
        new_tokens_max=7,
        temperature=0.0,
        top_p=0.5,
        seed=-3,
        stops=("a", "bcdef"),
        is_streamed=True,
        reports_usage=True,
        conversation="talk",
        method="naive",
    )


def test_the_newer_name_of_the_limit_counts() -> None:
    assert read(max_completion_tokens=9).new_tokens_max == 9


def test_one_stop_string_needs_no_list() -> None:
    assert read(stop="end").stops == ("end",)


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"model": None}, "model"),
        ({"n": 2}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 101}, "max_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 3}, "max_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"seed": 2**63}, "seed"),
        ({"stop": 3}, "stop"),
        ({"stop": ["a", "b", "c"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a", 3]}, "stop"),
        ({"stop": "longer"}, "stop"),
        ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"more": 1}}, "stream_options.more"),
        ({"stream": True, "stream_options": 3}, "stream_options"),
        ({"conversation": "é" * 65}, "conversation"),
        ({"link_method": "attnlink-3"}, "link_method"),
    ],
)
def test_what_is_out_of_range_is_named(fields: dict[str, Any], parameter: str) -> None:
    assert refused(lambda: read(**fields))[0] == parameter
