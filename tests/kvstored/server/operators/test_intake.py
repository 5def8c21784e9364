import pytest

from kvstored.server.errors import RefusedError
from kvstored.server.operators.intake import WRITES, Intake
from kvstored_contract.reasons import Reason
from tests.faults.clients.methods import METHODS

PUT = "kvstored.v1.StoreService/Put"
READ = "kvstored.v1.StoreService/Read"


def test_writes_are_methods_of_the_contract() -> None:
    assert {f"/{name}" for name in WRITES} <= {method.path for method in METHODS}


def test_only_writes_are_counted() -> None:
    intake = Intake()
    with intake.call(PUT), intake.call(PUT), intake.call(READ):
        assert intake.write_count == 2
    assert intake.write_count == 0


def test_a_write_that_fails_is_over() -> None:
    intake = Intake()
    with pytest.raises(KeyError), intake.call(PUT):
        raise KeyError
    assert intake.write_count == 0


def test_what_is_closed_refuses_writes_and_sessions() -> None:
    intake = Intake()
    intake.is_open = False
    with intake.call(READ):
        pass
    with pytest.raises(RefusedError) as refused, intake.call(PUT):
        pass
    assert refused.value.reason is Reason.DRAINING
    with pytest.raises(RefusedError):
        intake.check()
    assert intake.write_count == 0
