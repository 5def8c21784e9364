import logging
from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.identity.request_identity import UnknownIdentityError
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.store_identities import StoreIdentities

REQUEST: Any = Mock(request_id="a")


def test_a_generation_has_a_namespace_of_its_own() -> None:
    """Of requests with the same salt, too, and no two generations have the same."""
    known = RequestIdentity(salt="client")
    identities = StoreIdentities(Mock(identity_of=lambda _: known), Tally())
    found = [identities.of(REQUEST)]
    for _ in range(2):
        identities.begin_generation()
        found.append(identities.of(REQUEST))
    assert found[0] == known
    assert len(set(found)) == 3


def test_each_cause_of_a_bypass_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    causes = iter(["one", "one", "another"])

    def refuse(_: object) -> RequestIdentity:
        raise UnknownIdentityError(next(causes))

    identities = StoreIdentities(Mock(identity_of=refuse), tally)
    with caplog.at_level(logging.WARNING, logger="vllm.kvstored"):
        assert [identities.of(REQUEST) for _ in range(3)] == [None] * 3
    assert [record.getMessage().split()[-1] for record in caplog.records] == ["one", "another"]
    assert tally.counts["unknown_requests"] == 3
