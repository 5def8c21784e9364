"""How long a load is waited for before anybody knows what computing costs: what is a silence."""

from types import SimpleNamespace
from typing import Any

from engine_adapters.restore import LoadClock, StepCosts, TokenRange
from engine_adapters.vllm.worker_side.load_bound import SILENCE_S, LoadBound

TOKENS = 64


class Bench:
    """The bound of one load, the reader of which says what a test lets it say."""

    def __init__(self) -> None:
        self.clock = LoadClock()
        self.device_bytes = 0
        self.reader: Any = SimpleNamespace(spans=("a span",), is_reading=True)
        self.reader.read_bytes = lambda: (self.device_bytes, 0)
        self.bound = LoadBound(
            TokenRange(0, TOKENS),
            byte_count=1 << 20,
            costs=StepCosts(None, step_tokens=TOKENS),
            clock=self.clock,
            least_wait_s=0.0,
        )

    def is_waited_for(self, duration_s: float) -> bool:
        """After that time."""
        self.clock.now_s += duration_s
        self.bound.look()
        return self.bound.is_waited_for(self.reader)


def test_a_silence_ends_it() -> None:
    bench = Bench()
    assert bench.is_waited_for(0.9 * SILENCE_S)
    assert not bench.is_waited_for(0.2 * SILENCE_S)


def test_each_byte_ends_a_silence() -> None:
    bench = Bench()
    for _ in range(3):
        assert bench.is_waited_for(0.9 * SILENCE_S)
        bench.device_bytes += 1
        assert bench.is_waited_for(0.2 * SILENCE_S)


def test_a_reader_that_has_nothing_to_read_is_not_silent() -> None:
    """All that was asked for has come, and waits for the engine or for a copy."""
    bench = Bench()
    bench.reader.is_reading = False
    assert bench.is_waited_for(10 * SILENCE_S)
    bench.reader.is_reading = True
    assert bench.is_waited_for(0.9 * SILENCE_S)
    assert not bench.is_waited_for(0.2 * SILENCE_S)


def test_a_reader_that_has_asked_for_nothing_is_not_silent() -> None:
    bench = Bench()
    bench.reader.spans = ()
    assert bench.is_waited_for(10 * SILENCE_S)
    bench.reader.spans = ("a span",)
    assert bench.is_waited_for(0.9 * SILENCE_S)
    assert not bench.is_waited_for(0.2 * SILENCE_S)


def test_what_others_take_is_no_silence_of_the_store() -> None:
    bench = Bench()
    bench.bound.waits_for_others = True
    assert bench.is_waited_for(10 * SILENCE_S)
    assert bench.is_waited_for(0.9 * SILENCE_S)
    assert not bench.is_waited_for(0.2 * SILENCE_S)
