import pytest

from engine_adapters.link.method import LinkMethod


@pytest.mark.parametrize(
    ("name", "half", "percent", "ranked_k"),
    [
        ("naive", 0, 0, 0),
        ("full", None, 0, 0),
        ("attnlink-2", 1, 0, 0),
        ("attnlink-16", 8, 0, 0),
        ("cacheblend-1", 0, 1, 0),
        ("cacheblend-100", 0, 100, 0),
        ("query-2", 0, 0, 2),
        ("split-4", 1, 0, 4),
        ("split-16", 4, 0, 16),
    ],
)
def test_a_method_has_a_name(name: str, half: int | None, percent: int, ranked_k: int) -> None:
    assert LinkMethod.named(name) == LinkMethod(half, percent, ranked_k)
    assert str(LinkMethod.named(name)) == name


def test_a_query_has_the_tokens_of_boundaries() -> None:
    for name in ("query-16", "split-16", "attnlink-16"):
        assert str(LinkMethod.named(name).boundary_only) == "attnlink-16"


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
        "query-0",
        "query-3",
        "split-6",
    ],
)
def test_refuses_other_names(name: str) -> None:
    with pytest.raises(
        ValueError, match="naive, full, attnlink-k or query-k with an even k, split-k"
    ):
        LinkMethod.named(name)
