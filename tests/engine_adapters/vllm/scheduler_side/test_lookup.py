"""Look-ups of layouts that the daemon refuses, of those that it takes, and of one that hangs."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import Mock, patch

import pytest
from google.protobuf.message import Message

from engine_adapters.breaker import PAUSE_S
from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.lookup import LOGGER, THREADS, Lookup, PendingLookup
from kvstored_client import Client, LayerState, Lease, Match, StateKind, StateLayout
from kvstored_client.testing import MemoryClient, MemoryStore
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX
from kvstored_protos.v1 import store_pb2
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S, wait_until

TOKENS = list(range(128))


def lookup_of(client: Client, token_bytes: int) -> Lookup:
    layout = StateLayout(
        model="m", dtype="float32", layers=(LayerState(StateKind.KV, token_bytes),), chunk_tokens=64
    )
    return Lookup(client, [layout], fingerprint="m", timeout_s=PATIENCE_S, lease_ms=1000)


def ask(lookup: Lookup) -> Found:
    found = lookup.ask(RequestIdentity(), TOKENS).result(PATIENCE_S)
    assert found is not None
    return found


def test_refused_layout_is_told_at_start_and_names_no_key(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: each chunk was copied for a save that could only fail."""
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    client = Client(shared_daemon.socket_path, arena_bytes="1MiB")
    lookup = lookup_of(client, 256 * 1024)
    wait_until(lambda: bool(told))
    assert ask(lookup) == Found()
    assert ask(lookup) == Found()
    (sentence,) = told
    assert "use a smaller chunk_tokens, or give the daemon a larger slab_bytes" in sentence
    lookup.close()


def test_layout_that_is_taken_has_keys(shared_daemon: DaemonProcess) -> None:
    client = Client(shared_daemon.socket_path, arena_bytes="1MiB")
    lookup = lookup_of(client, 1024)
    found = ask(lookup)
    assert found.chain is not None
    assert len(found.chain.extend(())) == 2
    lookup.close()


def test_nothing_of_a_very_long_prompt_was_found() -> None:
    """Bug: all keys went with one call, which the daemon refuses above a number of them."""
    with MemoryClient(MemoryStore(), arena_bytes="1MiB") as client:
        asked: list[int] = []

        def match(_: StateLayout, keys: Sequence[bytes], **__: object) -> Match[Lease]:
            asked.append(len(keys))
            return Match(chunk_count=len(keys), lease=None)

        lookup = lookup_of(client, 1024)
        with patch.object(client, "match", match):
            tokens = range(64 * (CHUNKS_PER_CALL_MAX + 2))
            found = lookup.ask(RequestIdentity(), tokens).result(PATIENCE_S)
        assert asked == [CHUNKS_PER_CALL_MAX]
        assert found is not None
        assert found.chunk_count == CHUNKS_PER_CALL_MAX
        lookup.close()


def test_chain_of_another_daemon_does_not_save_what_this_one_refuses(
    shared_daemon: DaemonProcess,
) -> None:
    """A request that was asked for before the daemon was replaced, and is asked for again."""
    client = Client(shared_daemon.socket_path, arena_bytes="1MiB")
    chain = ask(lookup_of(client, 1024)).chain
    assert chain is not None
    refused = lookup_of(client, 256 * 1024)
    found = refused.ask(RequestIdentity(), TOKENS, chain=chain).result(PATIENCE_S)
    assert found == Found()
    refused.close()


def test_nothing_is_found_while_the_daemon_refuses_a_worker_and_keys_are_known(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(shared_daemon.socket_path, arena_bytes="1MiB")
    lookup = lookup_of(client, 1024)
    match = Mock(return_value=Match(2, None))
    monkeypatch.setattr(client, "match", match)
    assert ask(lookup).chunk_count == 2
    lookup.hear_refusals({0: "no"})
    found = ask(lookup)
    assert match.call_count == 1
    assert found.chunk_count == 0
    assert found.chain is not None
    assert len(found.chain.extend(())) == 2
    lookup.hear_refusals({0: ""})
    assert ask(lookup).chunk_count == 2
    lookup.close()


class Hanging:
    """A look-up of a store that answers no ``held`` call while it is not open; its own clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.held: type[Message] = store_pb2.MatchRequest
        self.is_open = threading.Event()
        self.store = MemoryStore()
        self.client = MemoryClient(self.store)
        self.store.faults.before = self.hold
        layout = StateLayout(
            model="m", dtype="float32", layers=(LayerState(StateKind.KV, 1024),), chunk_tokens=64
        )
        self.lookup = Lookup(
            self.client,
            [layout],
            fingerprint="m",
            timeout_s=0.25,
            lease_ms=1000,
            clock=lambda: self.now_s,
        )

    def hold(self, request: Message) -> None:
        if isinstance(request, self.held):
            assert self.is_open.wait(PATIENCE_S)

    @property
    def match_count(self) -> int:
        return len(self.store.asked(store_pb2.MatchRequest))

    def ask(self) -> PendingLookup:
        return self.lookup.ask(RequestIdentity(), TOKENS)

    def hang(self) -> list[PendingLookup]:
        """All threads wait for the store."""
        before = self.match_count
        asked = [self.ask() for _ in range(THREADS)]
        wait_until(lambda: self.match_count == before + THREADS)
        return asked

    def close(self) -> None:
        self.is_open.set()
        self.lookup.close()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.close()


def test_hung_daemon_costs_each_request_its_deadline(hanging: Hanging) -> None:
    """Bug: for as long as it hung."""
    first = hanging.hang()
    assert first[0].result(0.0) is None
    hanging.now_s += 2.0
    assert [pending.result(0.0) for pending in first] == [Found()] * THREADS
    assert [hanging.ask().result(0.0) for _ in range(5)] == [Found()] * 5
    assert hanging.match_count == THREADS
    hanging.is_open.set()
    wait_until(lambda: hanging.lookup._breaker.call_count == 0)
    assert hanging.ask().result(0.0) == Found(), "it was slow a moment ago"
    hanging.now_s += PAUSE_S
    found = hanging.ask().result(PATIENCE_S)
    assert found is not None
    assert found.chain is not None
    assert hanging.ask().result(PATIENCE_S) != Found()


def test_look_ups_that_nobody_waits_for_stay_queued(hanging: Hanging) -> None:
    """Bug: they were asked all the same, each after a call of 10 s."""
    hanging.hang()
    dropped = [hanging.ask() for _ in range(3)]
    for pending in dropped:
        hanging.lookup.drop(pending)
    last = hanging.ask()
    hanging.is_open.set()
    assert last.result(PATIENCE_S) != Found()
    assert hanging.match_count == THREADS + 1


def test_look_up_whose_deadline_is_over_is_not_asked(hanging: Hanging) -> None:
    hanging.hang()
    late = hanging.ask()
    hanging.now_s += 0.5
    hanging.is_open.set()
    assert late.result(PATIENCE_S) == Found()
    assert hanging.match_count == THREADS


def test_leases_of_a_daemon_that_hangs_end_with_their_time(hanging: Hanging) -> None:
    """A release would keep a thread from the first request after it has recovered."""
    hanging.is_open.set()
    found = hanging.ask().result(PATIENCE_S)
    assert found is not None
    hanging.is_open.clear()
    hanging.hang()
    hanging.now_s += 2.0
    lease = Mock()
    hanging.lookup.release(replace(found, leases=(lease,)))
    hanging.is_open.set()
    hanging.lookup._threads.shutdown(wait=True)
    assert not lease.release.called


def test_leases_that_a_hung_daemon_does_not_take_cost_no_request_its_deadline(
    hanging: Hanging,
) -> None:
    """Bug: giving them back held both threads, and nobody noticed that the daemon hung."""
    hanging.held = store_pb2.UnpinRequest
    lease, last = Mock(), Mock()
    lease.release.side_effect = lambda: hanging.hold(store_pb2.UnpinRequest())
    for _ in range(THREADS):
        hanging.lookup.release(Found(leases=(lease,)))
    wait_until(lambda: lease.release.call_count == THREADS)
    hanging.lookup.release(Found(leases=(last,)))
    hanging.now_s += 2.0
    assert hanging.ask().result(0.0) == Found()
    hanging.is_open.set()
    hanging.lookup._threads.shutdown(wait=True)
    assert not last.release.called, "it ends with its time"


def test_a_question_for_which_no_thread_could_be_started_ended_the_engine(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the second thread was started by the first question that found the other one busy."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    for asked in hanging.hang():
        asked.cancel()
