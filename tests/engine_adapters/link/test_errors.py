import pytest

from engine_adapters.link.errors import ExpiredError, LinkError, LostEntryError, QuotaError


@pytest.mark.parametrize("kind", [ExpiredError, LostEntryError])
def test_an_error_names_the_id(kind: type[ExpiredError] | type[LostEntryError]) -> None:
    error = kind("cc-5")
    assert isinstance(error, LinkError)
    assert error.entry_id == "cc-5"
    assert "'cc-5'" in str(error)


@pytest.mark.parametrize(
    ("limit_name", "what"), [("entries_max", "9 entries"), ("tokens_max", "9 tokens in entries")]
)
def test_an_error_names_the_limit(limit_name: str, what: str) -> None:
    error = QuotaError(limit_name, 8, 9)
    assert isinstance(error, LinkError)
    assert (error.limit_name, error.limit) == (limit_name, 8)
    assert what in str(error)
    assert f"{limit_name} allows 8" in str(error)
