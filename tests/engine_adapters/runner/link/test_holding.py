"""Entries that a request names, from when it is added to its last token."""

import threading
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from google.protobuf.message import Message
from torch import Tensor

from engine_adapters.link.errors import ExpiredError, QuotaError
from engine_adapters.link.quota import EntryQuota
from engine_adapters.runner.link.entry_leases import THREAD_NAME as LEASES
from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EntryName
from engine_adapters.runner.model.model import Model
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.link.lab import NEW_TOKENS, LinkLab, entry, ids, new
from tests.engine_adapters.runner.memory import check_released
from tests.support.waiting import SOON_S, wait_until

PARTS = [entry(13, 1), entry(10, 2), new(5)]


def test_an_entry_that_is_ended_is_over_for_the_next_request(
    make_lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(PARTS)
    first = named[0]
    assert isinstance(first, EntryName)
    leases: list[int] = []
    forward = Model.forward

    with MemoryClient(lab.store) as client, lab.runner(client) as runner:

        def watched(model: Model, token_ids: Sequence[int], *rest: Any, **options: Any) -> Tensor:
            # That of the reader has gone, because everything was loaded; that of the request stays.
            readers = runner._store.share.holders
            wait_until(lambda: not any(one.is_running for one in readers), within_s=SOON_S)
            wait_until(lambda: lab.store.leases_in_use == 1, within_s=SOON_S)
            leases.append(lab.store.leases_in_use)
            runner.entries.expire(first.entry_id)
            return forward(model, token_ids, *rest, **options)

        monkeypatch.setattr(Model, "forward", watched)
        request = LinkRequest(parts=named, new_tokens_max=NEW_TOKENS, method="attnlink-6")
        completion = runner.link(request)
        expected: list[int] = []
        for _ in range(NEW_TOKENS):
            expected.append(int(lab.expected(PARTS, "attnlink-6", expected).argmax()))
        assert list(completion.generated_ids) == expected
        # One lease for the request, in each of its steps, and none after it.
        assert leases == [1] * NEW_TOKENS
        wait_until(lambda: not lab.store.leases_in_use, within_s=SOON_S)
        with pytest.raises(ExpiredError, match=first.entry_id):
            runner.link(request)
    check_released(lab.store)


def test_a_request_that_waits_holds_its_entries(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(PARTS)
    with MemoryClient(lab.store) as client, lab.runner(client) as runner:
        known = {
            part.entry_id: runner.entries.get(part.entry_id)
            for part in named
            if isinstance(part, EntryName)
        }
        number = runner._add(LinkRequest(parts=named, new_tokens_max=1), known)
        wait_until(lambda: lab.store.leases_in_use == 1, within_s=SOON_S)
        assert runner._engine.abort(number)
        wait_until(lambda: not lab.store.leases_in_use, within_s=SOON_S)


def test_a_store_that_hangs_does_not_hold_up_the_engine(make_lab: Any) -> None:
    """*Bug:* the engine's thread asked for the lease of a request, and gave it back itself.

    A daemon that hung kept all requests from going on for the deadline of each such call.
    """
    lab: LinkLab = make_lab()
    named = lab.named(PARTS)
    hangs, may_go_on, callers = threading.Event(), threading.Event(), set()

    def hang(request: Message) -> None:
        callers.add(threading.current_thread().name)
        if threading.current_thread().name == LEASES:
            hangs.set()
            assert may_go_on.wait(SOON_S)

    with MemoryClient(lab.store) as client, lab.runner(client) as runner:
        known = {
            part.entry_id: runner.entries.get(part.entry_id)
            for part in named
            if isinstance(part, EntryName)
        }
        lab.store.faults.before = hang
        requests = [LinkRequest(parts=named, new_tokens_max=NEW_TOKENS)] * 3
        numbers = [runner._add(one, known) for one in requests]
        assert hangs.wait(SOON_S)
        # Requests end, are aborted and come while the first call of all hangs.
        assert runner._engine.abort(numbers[0])
        assert len(runner._run(numbers[1:])) == 2
        assert not may_go_on.is_set()
        assert threading.current_thread().name not in callers
        may_go_on.set()
    check_released(lab.store)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_what_is_stored_is_not_computed_to_make_it_again(
    make_lab: Any, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab: LinkLab = make_lab(codec=codec)
    chunks = [ids(9, 1), ids(3, 2), ids(8, 3)]
    made = lab.generate(chunks, sink_ids=[7])
    forward = Mock(side_effect=AssertionError("something was computed"))
    monkeypatch.setattr(Model, "forward", forward)
    assert lab.generate(chunks, sink_ids=[7]) == made


def test_a_quota_is_told_before_anything_is_computed(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    with (
        MemoryClient(lab.store) as client,
        LinkRunner(
            lab.model,
            client,
            lab.state_format,
            cache_tokens=100,
            quota=EntryQuota(entries_max=2),
        ) as runner,
    ):
        runner.generate_context_cache([ids(9, 1), ids(9, 2)])
        count = len(lab.store.chunks)
        with pytest.raises(QuotaError, match="entries_max allows 2"):
            runner.generate_context_cache([ids(9, 1), ids(9, 3)])
        assert len(lab.store.chunks) == count
