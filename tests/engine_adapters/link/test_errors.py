from engine_adapters.link.errors import ExpiredError, LinkError


def test_an_error_names_the_id() -> None:
    error = ExpiredError("cc-5")
    assert isinstance(error, LinkError)
    assert error.entry_id == "cc-5"
    assert "'cc-5'" in str(error)
