from collections.abc import Callable

import pytest

from engine_adapters.server.protocol.fields import Fields
from tests.engine_adapters.server.protocol.bodies import body, refused


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"a": NaN}', b'{"a": Infinity}'])
def test_a_body_is_json(text: bytes) -> None:
    parameter, message = refused(lambda: Fields.of_body(text))
    assert parameter is None
    assert message.startswith("the body is no JSON")


def test_a_body_that_is_too_deep_is_no_json() -> None:
    deep = b"[" * 200_000
    assert refused(lambda: Fields.of_body(deep))[1].startswith("the body is no JSON")


def test_a_body_is_an_object() -> None:
    assert refused(lambda: Fields.of_body(b"[]")) == (None, "the body must be a JSON object")


def test_an_object_in_it_is_named() -> None:
    assert refused(lambda: Fields(3, path="a[0]")) == ("a[0]", "a[0] must be a JSON object")


def test_values_are_read() -> None:
    fields = Fields.of_body(body(text="a", flag=True, whole=3, number=0.5, other=[1], nothing=None))
    assert fields.text("text") == fields.required_text("text") == "a"
    assert fields.flag("flag")
    assert fields.integer("whole", least=3, most=3) == 3
    assert fields.number("number", most=1, default=0) == 0.5
    assert fields.value("other") == [1]
    assert fields.value("nothing") is None
    fields.finish()


def test_an_unknown_key_without_a_value_was_refused() -> None:
    """Bug: clients that name all keys, most of them null, were asked to leave them out."""
    Fields({"tools": None}).finish()


@pytest.mark.parametrize("value", ["a\ud83d", ["b", "\udc00"]])
def test_half_a_surrogate_pair_was_an_error_of_the_server(value: object) -> None:
    """Bug: a text that was cut within an emoji was answered with 500, which clients try again."""
    fields = Fields.of_body(body(it=value))
    assert refused(lambda: fields.value("it")) == (
        "it",
        "it must be text that can be written as UTF-8",
    )


def test_what_is_left_out_has_a_default() -> None:
    fields = Fields.of_body(body(whole=None))
    assert fields.text("text") is None
    assert not fields.flag("flag")
    assert fields.integer("whole", least=1, most=2) is None
    assert fields.number("number", most=1, default=0.25) == 0.25
    fields.finish()


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (3, lambda fields: fields.text("it")),
        ("", lambda fields: fields.text("it")),
        (None, lambda fields: fields.required_text("it")),
        (1, lambda fields: fields.flag("it")),
        ("3", lambda fields: fields.integer("it", least=1, most=5)),
        (True, lambda fields: fields.integer("it", least=1, most=5)),
        (1.5, lambda fields: fields.integer("it", least=1, most=5)),
        (0, lambda fields: fields.integer("it", least=1, most=5)),
        (6, lambda fields: fields.integer("it", least=1, most=5)),
        ("1", lambda fields: fields.number("it", most=2, default=1)),
        (True, lambda fields: fields.number("it", most=2, default=1)),
        (-0.1, lambda fields: fields.number("it", most=2, default=1)),
        (2.1, lambda fields: fields.number("it", most=2, default=1)),
    ],
)
def test_other_values_are_refused(value: object, read: Callable[[Fields], object]) -> None:
    parameter, message = refused(lambda: read(Fields({"it": value}, path="a[1]")))
    assert parameter == "a[1].it"
    assert message.startswith("a[1].it must be ")


def test_what_nobody_read_is_refused_by_name() -> None:
    fields = Fields.of_body(body(known=1, top_k=3))
    fields.value("known")
    parameter, message = refused(fields.finish)
    assert parameter == "top_k"
    assert message == "this server does not know top_k; leave it out"
