from pathlib import Path

import pytest

from engine_adapters.server.api_keys import ApiKeys, KeysError
from engine_adapters.server.protocol.api_error import ApiError


def test_without_keys_everybody_has_one_namespace() -> None:
    keys = ApiKeys({})
    assert keys.names == ("",)
    assert keys.namespace_of(None) == keys.namespace_of("Bearer any") == ""


def test_a_key_opens_its_namespace(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('"sk-1" = "b"\n"sk-2" = "a"\n"sk-3" = "a"\n')
    keys = ApiKeys.from_file(path)
    assert keys.names == ("a", "b")
    assert keys.namespace_of("Bearer sk-1") == "b"
    assert keys.namespace_of("bearer  sk-3") == "a"


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer sk", "Basic sk-1", "sk-1", "Bearer \udcff"]
)
def test_any_other_key_opens_nothing(header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        ApiKeys({"sk-1": "b"}).namespace_of(header)
    assert caught.value.status == 401


@pytest.mark.parametrize("text", ["", "=", '"sk" = 3', '"sk" = ""', '[keys]\n"sk" = "a"'])
def test_a_file_that_says_something_else_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(KeysError, match=str(path)):
        ApiKeys.from_file(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="cannot read the keys"):
        ApiKeys.from_file(tmp_path / "none")
