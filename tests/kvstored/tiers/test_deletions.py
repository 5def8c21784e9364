from concurrent.futures import Future

import pytest

from kvstored.tiers.deletions import counted


def test_all_are_waited_for_and_those_that_deleted_something_are_counted() -> None:
    first, second = Future[bool](), Future[bool]()
    total = counted([first, second])
    first.set_result(True)
    assert not total.done()
    second.set_result(False)
    assert total.result() == 1
    assert counted([]).result() == 0


def test_one_that_failed_fails_all_when_all_have_ended() -> None:
    first, second = Future[bool](), Future[bool]()
    total = counted([first, second])
    first.set_exception(OSError("first"))
    assert not total.done()
    second.set_result(True)
    with pytest.raises(OSError, match="first"):
        total.result()
