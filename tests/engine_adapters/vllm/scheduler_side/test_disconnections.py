from types import SimpleNamespace
from typing import cast

from engine_adapters.vllm.messages.tally import COUNTERS
from engine_adapters.vllm.scheduler_side.disconnections import Disconnections, causes_of
from kvstored_client import Client
from kvstored_client.testing import MemoryClient, MemoryStore


def test_each_cause_is_counted_for_itself() -> None:
    counters = {
        "connects": 3,
        "connect_failures": 17,
        "connect_refused_LIMIT_EXCEEDED": 1,
        "connect_refused_ACCESS_REFUSED": 2,
        "connect_refused_DRAINING": 4,
        "connect_refused_FIELD_INVALID": 8,
    }
    causes = causes_of(counters)
    assert causes == {
        "disconnected_absent": 2,
        "disconnected_limit": 1,
        "disconnected_access": 2,
        "disconnected_other": 12,
    }
    assert causes.keys() <= COUNTERS.keys()


def test_what_was_taken_is_not_taken_again() -> None:
    store = MemoryStore()
    with MemoryClient(store) as client:
        disconnections = Disconnections(client)
        assert disconnections.take() == {}
        store.faults.session_refusal = "no"
        client.available()
        client.available()
        assert disconnections.take() == {"disconnected_limit": 2}
        assert disconnections.take() == {}
        store.kill()
        client.available()
        assert disconnections.take() == {"disconnected_absent": 1}


def test_a_refusal_that_was_seen_between_its_two_counts_was_taken_back_as_minus_one() -> None:
    """Counters of Prometheus raise for what is below 0."""
    counters = {"connect_failures": 1}
    disconnections = Disconnections(cast("Client", SimpleNamespace(counters=counters)))
    assert disconnections.take() == {"disconnected_absent": 1}
    counters["connect_refused_LIMIT_EXCEEDED"] = 1
    assert disconnections.take() == {"disconnected_limit": 1}
    # One that is really absent: it was told already.
    counters["connect_failures"] = 2
    assert disconnections.take() == {}
    counters["connect_failures"] = 3
    assert disconnections.take() == {"disconnected_absent": 1}
