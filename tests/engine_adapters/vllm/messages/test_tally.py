import pytest

from engine_adapters.vllm.messages.tally import Tally, joined


def test_counts_are_taken_once() -> None:
    tally = Tally()
    tally.add("jumps")
    tally.add("jumps", 2)
    tally.add("loads", 0)
    assert tally.take() == {"jumps": 3}
    assert tally.take() == {}


def test_unknown_counter_is_refused() -> None:
    with pytest.raises(KeyError):
        Tally().add("jump")


def test_sums_of_both() -> None:
    assert joined({"jumps": 1, "loads": 2}, {"loads": 3}) == {"jumps": 1, "loads": 5}
