from engine_adapters.server.protocol.events import DONE, event


def test_an_object_is_one_line() -> None:
    assert event({"a": "one\ntwo €"}) == b'data: {"a":"one\\ntwo \\u20ac"}\n\n'


def test_the_end_is_that_of_openai() -> None:
    assert DONE == b"data: [DONE]\n\n"


def test_half_a_pair_of_surrogates_is_escaped() -> None:
    assert event({"a": "\ud800"}) == b'data: {"a":"\\ud800"}\n\n'
