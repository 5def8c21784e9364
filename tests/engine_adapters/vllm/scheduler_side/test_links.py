"""Which requests are linked, and that vLLM takes none of their blocks for another's."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.scheduler_side.linking import Linking
from engine_adapters.vllm.scheduler_side.links import CAUSES_MAX, Links
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack


def links(*, is_on: bool = True) -> Links:
    return Links(is_on=is_on, block_tokens=16, chunk_tokens=64)


def request_of(entries: object = ((5, 100),), **changes: Any) -> Any:
    request = SimpleNamespace(
        request_id="a",
        num_tokens=200,
        kv_transfer_params={"entries": entries, "link": "naive"},
        cache_salt="tenant",
        block_hashes=[b"plain"],
        mm_features=[],
    )
    request.update_block_hashes = lambda: request.block_hashes.append(request.cache_salt.encode())
    return SimpleNamespace(**{**vars(request), **changes}) if changes else request


def test_a_linked_request_has_hashes_of_its_own() -> None:
    one, other = request_of(), request_of()
    assert linking_of(links(), one) is not None
    assert linking_of(links(), other) is not None
    assert len({one.cache_salt, other.cache_salt, "tenant"}) == 3
    assert one.block_hashes == [one.cache_salt.encode()]


def linking_of(side: Links, request: Any) -> Linking | None:
    track = RequestTrack(request=request, identity=RequestIdentity(), chunk_tokens=64)
    side.add(track)
    return track.linking


@pytest.mark.parametrize("parameters", [None, {}, {"entries": []}])
def test_other_requests_are_as_they_were(parameters: object) -> None:
    one = request_of(kv_transfer_params=parameters)
    assert linking_of(links(), one) is None
    assert (one.cache_salt, one.block_hashes) == ("tenant", [b"plain"])


@pytest.mark.parametrize(
    ("is_on", "changes", "said"),
    [
        (False, {}, 'mode "pic"'),
        (True, {"mm_features": [object()]}, "images"),
        (True, {"num_tokens": 60}, "prompt of 60"),
    ],
)
def test_one_that_cannot_be_linked_is_computed_and_why_is_said_once(
    is_on: bool, changes: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    side = links(is_on=is_on)
    with caplog.at_level(logging.WARNING, logger="vllm.kvstored"):
        for _ in range(2):
            one = request_of(**changes)
            assert linking_of(side, one) is None
            assert (one.cache_salt, one.block_hashes) == ("tenant", [b"plain"])
    (record,) = caplog.records
    assert said in record.getMessage()


def test_clients_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    side = links()
    with caplog.at_level(logging.WARNING, logger="vllm.kvstored"):
        for stop in range(201, 201 + 2 * CAUSES_MAX):
            assert linking_of(side, request_of([[5, stop]])) is None
    assert len(caplog.records) == CAUSES_MAX
