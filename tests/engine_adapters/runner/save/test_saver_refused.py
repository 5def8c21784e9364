"""What a saver makes of a store that refuses something, or is gone."""

import threading
from collections.abc import Callable

import pytest
from google.protobuf.message import Message

from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Reason
from kvstored_client.session.options import Options
from kvstored_client.session.session import Session
from kvstored_client.testing import CallName, MemoryClient
from kvstored_protos.v1.sequence_pb2 import CreateSequenceRequest, SequenceRequest
from kvstored_protos.v1.store_pb2 import AppendRequest
from tests.engine_adapters.runner.memory import at, make_store
from tests.engine_adapters.runner.save.told_states import step

MakeTokens = Callable[[int, int], list[int]]


def test_a_chunk_that_could_not_be_stored_takes_back_what_was_staged(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 12))
    saver.finish()
    client.store.faults.append_rejection = lambda index, name: Reason.STORE_FULL
    step(saver, (0, 12, 8))
    saver.finish()
    client.store.faults.append_rejection = lambda index, name: None
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=8, dropped_tokens=8)


def test_a_refused_append_stops_only_its_own_sequence(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = [make_tokens(80, seed) for seed in range(2)]
    for request_id in range(2):
        saver.begin_request(request_id, tokens[request_id], 0)
    client.store.faults.append_rejection = lambda index, name: (
        Reason.DRAM_FULL if index == 1 and name.endswith("-0") else None
    )
    for first in (0, 16, 32):
        step(saver, (0, first, 16), (1, first, 16))
        saver.finish()
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=16 + 48, dropped_tokens=32)
    assert set(client.store.chunks) == {
        *client.prefix_keys(state_format.layout, tokens[0])[:2],
        *client.prefix_keys(state_format.layout, tokens[1])[:6],
    }


def test_nothing_of_a_lost_session_is_appended(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.finish()
    client.store.kill()
    step(saver, (0, 0, 16))
    assert saver.finish() == SaveReport(dropped_tokens=16)
    assert client.store.asked(AppendRequest) == []


def test_no_key_no_append(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 1))
    saver.finish()
    monkeypatch.setattr(client, "prefix_keys", lambda layout, token_ids, *, parent: [])
    step(saver, (0, 1, 15))
    assert saver.finish() == SaveReport(dropped_tokens=15)
    assert client.store.call_counts[CallName.APPEND] == 1


def test_a_sequence_that_the_daemon_refuses_is_not_saved(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    client.store.faults.refusals[CallName.SEQUENCE_CREATE] = Reason.LIMIT_EXCEEDED
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.finish()
    step(saver, (0, 0, 16))
    assert saver.finish() == SaveReport(dropped_tokens=16)
    assert client.store.asked(AppendRequest) == []


@pytest.mark.parametrize("request_kind", [CreateSequenceRequest, AppendRequest])
def test_a_fault_of_the_queue_was_raised_for_ever(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    caplog: pytest.LogCaptureFixture,
    request_kind: type[Message],
) -> None:
    """Bug: each later turn of any conversation failed, until the process ended."""

    def fail() -> None:
        raise AssertionError("a bug")

    client.store.faults.before = at(request_kind, fail)
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 12))
    assert saver.finish() == SaveReport(dropped_tokens=12)
    assert "could not be saved" in caplog.text
    assert "a bug" in caplog.text
    client.store.faults.before = lambda _: None
    # The fault has ended the session in the middle of a call.
    assert client.available()
    saver.begin_request(1, make_tokens(80, 2), 0)
    step(saver, (0, 12, 4), (1, 0, 16))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=16, dropped_tokens=16)


def test_a_saver_whose_connecting_failed_never_tried_again(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []

    def fail() -> bool:
        tries.append(1)
        raise AssertionError("a bug")

    for request_id in range(2):
        saver.begin_request(request_id, make_tokens(80, request_id), 0)
    saver.finish()
    client.store.kill()
    with monkeypatch.context() as patched:
        patched.setattr(client, "available", fail)
        for request_id in range(2):
            step(saver, (request_id, 0, 16))
            saver.finish()
    assert len(tries) == 2


def test_a_conversation_whose_look_failed_went_on_in_another_one(
    client: MemoryClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    """Bug: its rows were added to the sequence of that name, whatever that was."""

    def fail() -> None:
        raise AssertionError("a bug")

    assert client.sequences.create("a talk", state_format.layout) is not None
    saver = StateSaver(client, state_format)
    saver.finish()
    client.store.faults.before = at(SequenceRequest, fail)
    saver.begin_conversation(0, "a talk", make_tokens(80, 1), (), 0, is_tail_stored=False)
    saver.finish()
    client.store.faults.before = lambda _: None
    assert client.available()
    step(saver, (0, 0, 12))
    saver.end_request(0)
    assert saver.finish() == SaveReport(dropped_tokens=12)
    saver.close()
    info = client.sequences.get("a talk")
    assert info is not None
    assert info.staged_tokens == 0


class WatchedClient(MemoryClient):
    """Notes the threads on which it connects or tries to."""

    def __init__(self) -> None:
        super().__init__(make_store())
        self.connect_threads: list[str] = []

    def _open_session(self, options: Options) -> Session:
        self.connect_threads.append(threading.current_thread().name)
        return super()._open_session(options)


def test_a_lost_session_is_connected_again_behind_the_engines_back(
    state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    """Regression: ``allocate`` connected on the engine's thread, within the client's time limit."""
    client = WatchedClient()
    saver = StateSaver(client, state_format)
    client.connect_threads.clear()
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.finish()
    client.store.kill()
    for first in (0, 16, 32):
        step(saver, (0, first, 16))
    assert saver.finish() == SaveReport(dropped_tokens=48)
    assert client.connect_threads
    assert all(name.startswith("save-queue") for name in client.connect_threads)
    client.store.start()
    saver.begin_request(1, make_tokens(80, 2), 0)
    saver.finish()
    step(saver, (1, 0, 16))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=16, dropped_tokens=48)
    assert all(name.startswith("save-queue") for name in client.connect_threads)
    saver.close()
    assert client.store.regions_in_use == 0
