"""A client and a daemon whose contracts are one minor version apart work together."""

import sys
from pathlib import Path

import pytest

from tests.protos import later_contract
from tests.support import client_alone
from tests.support.scale import Scale, at
from tests.support.served import run, served

ROOT = Path(__file__).parents[2]
FETCHED = "imported in vain: [], equal: True\n"

pytestmark = at(Scale.QUICK)


def paths(*folders: Path) -> dict[str, str]:
    every = (*folders, ROOT, ROOT / "client", ROOT / "protos")
    return {"PYTHONPATH": ":".join(map(str, every))}


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("later")
    later_contract.write(folder)
    return folder


def test_the_later_contract_has_more_fields_and_sends_them(later: Path) -> None:
    code = (
        "from kvstored_protos.v1 import store_pb2 as store;"
        "whole = store.PutRequest(chunks=[{}]).SerializeToString();"
        "print(whole.count(b'from a later version'))"
    )
    assert run(sys.executable, "-c", code, environment=paths(later)).stdout == "2\n"


def test_an_older_client_works_with_a_newer_daemon(later: Path) -> None:
    with served(Path(sys.executable).with_name("kvstored"), paths(later)) as socket:
        answer = run(sys.executable, client_alone.__file__, socket, environment=paths())
    assert answer.stdout == FETCHED, answer.stderr


def test_a_newer_client_works_with_an_older_daemon(later: Path) -> None:
    with served(Path(sys.executable).with_name("kvstored"), paths()) as socket:
        answer = run(sys.executable, client_alone.__file__, socket, environment=paths(later))
    assert answer.stdout == FETCHED, answer.stderr
