from collections.abc import Mapping

from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.due_counts import DueCounts
from engine_adapters.vllm.scheduler_side.pace import Pace


def nothing() -> Mapping[str, float]:
    return {}


def never() -> Mapping[str, float]:
    raise AssertionError


def test_computed_tokens_alone_are_not_due() -> None:
    pace = Pace()
    counts = DueCounts(Tally(), pace)
    pace.computed_tokens += 5
    assert counts.take(never) == {}
    counts.end_request()
    assert counts.take(nothing) == {"computed_tokens": 5}
    assert counts.take(never) == {}


def test_computed_tokens_go_once_with_what_else_was_counted() -> None:
    tally, pace = Tally(), Pace()
    counts = DueCounts(tally, pace)
    pace.computed_tokens += 5
    tally.add("jumps")
    assert counts.take(nothing) == {"computed_tokens": 5, "jumps": 1}
    pace.computed_tokens += 2
    tally.add("jumps")
    assert counts.take(lambda: {"disconnected_absent": 3.0}) == {
        "computed_tokens": 2,
        "disconnected_absent": 3,
        "jumps": 1,
    }
