import pytest

from engine_adapters.server.protocol.api_error import ApiError
from engine_adapters.server.running.admission import Admission


def status_of(admission: Admission) -> tuple[int, int | None]:
    with pytest.raises(ApiError) as caught:
        admission.enter()
    return caught.value.status, caught.value.retry_after_s


def test_places_are_given_back() -> None:
    admission = Admission(running_max=1, waiting_max=1)
    admission.enter()
    admission.enter()
    assert status_of(admission) == (429, 1)
    admission.leave()
    admission.enter()
    assert admission.count == 2


def test_draining_waits_for_those_that_are_there() -> None:
    admission = Admission(running_max=2, waiting_max=0)
    calls: list[str] = []
    admission.enter()
    admission.enter()
    admission.drain(lambda: calls.append("empty"))
    assert status_of(admission) == (503, 1)
    admission.leave()
    assert calls == []
    admission.leave()
    assert calls == ["empty"]


def test_draining_an_empty_server_is_over_at_once() -> None:
    calls: list[str] = []
    Admission(running_max=1, waiting_max=0).drain(lambda: calls.append("empty"))
    assert calls == ["empty"]
