import pytest

from engine_adapters.server.http.serving import Place
from engine_adapters.server.options import engine_of, limits_of, make_parser, place_of, store_of
from engine_adapters.server.protocol.limits import Limits


def test_defaults_are_those_of_the_parts() -> None:
    options = make_parser().parse_args(["--model", "m"])
    assert limits_of(options) == Limits()
    assert place_of(options) == Place(host="127.0.0.1", port=8000, drain_s=30.0)
    assert store_of(options).salt == ""
    assert engine_of(options).cache_tokens is None


def test_all_limits_can_be_set() -> None:
    arguments = "--model m --max-body-bytes 1 --max-prompt-tokens 2 --max-new-tokens 3"
    options = make_parser().parse_args([*arguments.split(), "--max-waiting", "4"])
    limits = limits_of(options)
    assert (limits.body_bytes, limits.prompt_tokens) == (1, 2)
    assert (limits.new_tokens, limits.waiting_max) == (3, 4)


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_is_a_number(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["--model", "m", "--port", port])
    assert "is no port from 0 to 65535" in capsys.readouterr().err
