import pytest

from engine_adapters.link.method import LinkMethod


@pytest.mark.parametrize(
    ("name", "half"), [("naive", 0), ("full", None), ("attnlink-2", 1), ("attnlink-16", 8)]
)
def test_a_method_has_a_name(name: str, half: int | None) -> None:
    assert LinkMethod.named(name) == LinkMethod(half)
    assert str(LinkMethod.named(name)) == name


@pytest.mark.parametrize(
    "name", ["", "Naive", "attnlink", "attnlink-0", "attnlink-3", "attnlink--2", "attnlink-2 "]
)
def test_refuses_other_names(name: str) -> None:
    with pytest.raises(ValueError, match="naive, full, or attnlink-k with an even k"):
        LinkMethod.named(name)
