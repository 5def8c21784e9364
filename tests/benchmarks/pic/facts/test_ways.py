"""Every way is one that the runner knows."""

from benchmarks.pic.facts.judged import EQUAL_TOKENS
from benchmarks.pic.facts.ways import WAYS
from engine_adapters.link.method import LinkMethod


def test_every_method_has_a_name_of_linking() -> None:
    for way in WAYS.values():
        assert str(LinkMethod.named(way.method)) == way.method
    assert set(EQUAL_TOKENS) <= set(WAYS)
