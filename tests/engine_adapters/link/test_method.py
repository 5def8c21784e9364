import pytest

from engine_adapters.link.method import LinkMethod


@pytest.mark.parametrize(
    ("name", "half", "percent"),
    [
        ("naive", 0, 0),
        ("full", None, 0),
        ("attnlink-2", 1, 0),
        ("attnlink-16", 8, 0),
        ("cacheblend-1", 0, 1),
        ("cacheblend-100", 0, 100),
    ],
)
def test_a_method_has_a_name(name: str, half: int | None, percent: int) -> None:
    assert LinkMethod.named(name) == LinkMethod(half, percent)
    assert str(LinkMethod.named(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Naive",
        "attnlink",
        "attnlink-0",
        "attnlink-3",
        "attnlink--2",
        "attnlink-2 ",
        "cacheblend-0",
        "cacheblend-101",
    ],
)
def test_refuses_other_names(name: str) -> None:
    with pytest.raises(ValueError, match="naive, full, attnlink-k with an even k, or cacheblend-r"):
        LinkMethod.named(name)
