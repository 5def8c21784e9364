import pytest

from engine_adapters.server.protocol.limits import Limits


def test_nobody_need_wait() -> None:
    assert Limits(waiting_max=0).waiting_max == 0


@pytest.mark.parametrize("name", ["body_bytes", "prompt_tokens", "new_tokens"])
def test_limits_are_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        Limits(**{name: 0})


def test_a_waiting_line_is_not_shorter_than_empty() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        Limits(waiting_max=-1)
