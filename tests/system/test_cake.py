"""Restoring from both ends with a real daemon and a real runner."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine_adapters.restore import ComputeCost, LoadCost
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.restore.cake_restoration import CakeRestoration
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from kvstored_client import Client, Read
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S, wait_until
from tests.system.conversation import CHUNK_TOKENS, NEW_TOKENS, PROMPT_CHUNKS, Laboratory

TOKEN_BUDGET = 32


class WatchedClient(Client):
    """A client that remembers its reads, and can do something before each."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reads: list[Read] = []
        self.before_read: Callable[[], None] = lambda: None

    def read(self, *arguments: Any, **options: Any) -> Read:
        self.before_read()
        read = super().read(*arguments, **options)
        self.reads.append(read)
        return read


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("laboratory"), is_cake=True)


@pytest.fixture
def client(shared_daemon: DaemonProcess, request: pytest.FixtureRequest) -> Iterator[WatchedClient]:
    with WatchedClient(
        shared_daemon.socket_path,
        arena_bytes="32MiB",
        salt=request.node.name,
        reconnect_interval_s=0.0,
    ) as client:
        assert client.available()
        yield client


def restorer_of(laboratory: Laboratory, client: WatchedClient) -> Restorer:
    """Expects that a chunk takes as long to load as to compute, and both so long that it waits
    for what the daemon has.
    """
    return Restorer(
        client,
        laboratory.format,
        laboratory.model,
        RestoreOptions(
            way=Way.BOTH_ENDS,
            compute=ComputeCost(step_s=0.1, token_s=1.0, attention_s=0.0),
            load=LoadCost(chunk_s=1.0 * CHUNK_TOKENS),
            step_tokens=TOKEN_BUDGET,
            opening_s_max=PATIENCE_S,
        ),
    )


def run(
    laboratory: Laboratory,
    client: WatchedClient,
    restorer: Restorer,
    *,
    saver: StateSaver | None = None,
    is_answered: bool = True,
) -> Completion:
    """What was asked for arrives while a step computes, and all of it, if it is answered."""
    engine = Engine(
        laboratory.model,
        cache_tokens=len(laboratory.prompt) + NEW_TOKENS,
        token_budget=TOKEN_BUDGET,
        requests_max=1,
        sink=saver,
        restorer=restorer,
    )
    engine.add_request(laboratory.prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
    client.reads.clear()

    def is_settled() -> bool:
        restorations = [request.restoration for request in engine._running.values()]
        is_planned = any(
            each.plan is not None and each.state.is_loading
            for each in restorations
            if isinstance(each, CakeRestoration)
        )
        is_read = bool(client.reads) and all(read.finished for read in client.reads)
        return is_read or not is_planned

    completions: list[Completion] = []
    while not completions:
        completions = engine.step()
        if is_answered:
            wait_until(is_settled)
    return completions[0]


def test_both_sides_work_and_nothing_is_stored_twice(
    laboratory: Laboratory, client: WatchedClient
) -> None:
    expected_ids = laboratory.run(client).generated_ids
    used = [device.used_bytes for device in client.admin.stats().devices]
    restorer = restorer_of(laboratory, client)
    saver = StateSaver(client, laboratory.format)
    completion = run(laboratory, client, restorer, saver=saver)
    restorer.close()
    report = saver.finish()
    saver.close()
    assert completion.generated_ids == expected_ids
    meeting = completion.restore.meeting_token
    assert meeting is not None
    assert 0 < meeting < PROMPT_CHUNKS * CHUNK_TOKENS
    assert completion.restore.restored_tokens == PROMPT_CHUNKS * CHUNK_TOKENS - meeting
    assert report == SaveReport()
    assert [device.used_bytes for device in client.admin.stats().devices] == used


def test_gaps_are_stored_again(laboratory: Laboratory, client: WatchedClient) -> None:
    expected_ids = laboratory.run(client).generated_ids
    keys = laboratory.keys(client)
    gap = [keys[3], keys[4], keys[11]]
    assert client.delete(gap) == len(gap)
    restorer = restorer_of(laboratory, client)
    saver = StateSaver(client, laboratory.format)
    completion = run(laboratory, client, restorer, saver=saver)
    restorer.close()
    saver.close()
    assert completion.generated_ids == expected_ids
    assert completion.restore.restored_tokens > 0
    assert client.match(laboratory.format.layout, keys).chunk_count == PROMPT_CHUNKS


def test_a_daemon_that_hangs_stalls_nobody(
    laboratory: Laboratory, client: WatchedClient, shared_daemon: DaemonProcess
) -> None:
    """It is stopped when it is asked to read, and goes on only when all tokens are there."""
    expected_ids = laboratory.run(client).generated_ids
    process = shared_daemon.process
    assert process is not None
    client.before_read = lambda: process.send_signal(signal.SIGSTOP)
    restorer = restorer_of(laboratory, client)
    try:
        completion = run(laboratory, client, restorer, is_answered=False)
        # Before it goes on: then it may answer at any moment.
        assert client.reads == []
    finally:
        process.send_signal(signal.SIGCONT)
    restorer.close()
    assert completion.generated_ids == expected_ids
    assert completion.restore.restored_tokens == 0


def test_two_restorations_share_what_they_learn(
    laboratory: Laboratory, client: WatchedClient
) -> None:
    expected_ids = laboratory.run(client).generated_ids
    restorer = restorer_of(laboratory, client)
    before_s = restorer.rates.chunk_s.value
    for _ in range(2):
        assert run(laboratory, client, restorer).generated_ids == expected_ids
    restorer.close()
    assert restorer.rates.chunk_s.value != before_s
