"""Turns of conversations that wait in the runner: the daemon fetches their histories ahead."""

from pathlib import Path

import pytest

from engine_adapters.runner.conversation.continued import ContinuedConversation, ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client
from kvstored_client.testing import MemoryClient, MemoryStore
from kvstored_protos.v1.sequence_pb2 import HintRequest
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.memory import make_store
from tests.support.daemon import MIB, DaemonProcess
from tests.support.waiting import SOON_S, wait_until

WINDOW, CHUNK_TOKENS, PROMPT = 256, 16, 120
TALKS = 32
FIRST = 3
"""Conversations at the head of the queue whose place in DRAM is looked at."""
CHUNKS = PROMPT // CHUNK_TOKENS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("model")
    write_llama(path, max_position_embeddings=WINDOW)
    return Model.from_directory(path)


class Lab:
    """An engine of one request at a time, and conversations that it saves and continues."""

    def __init__(self, model: Model, client: Client) -> None:
        states = StateFormat.of_model(model, "waiting", chunk_tokens=CHUNK_TOKENS)
        self.client = client
        self.saver = StateSaver(client, states)
        self.talks = ConversationStore(client, states, model, saver=self.saver)
        self.engine = Engine(model, cache_tokens=WINDOW, requests_max=1, sink=self.saver)

    def say(self, number: int) -> ContinuedConversation:
        """The first turn of a conversation."""
        talk = self.talks.open(f"talk {number}")
        prompt = [(number + index) % 97 for index in range(PROMPT)]
        self.engine.add_request(prompt, new_tokens_max=4, conversation=talk)
        (completion,) = self.engine.run()
        talk.end_turn(completion.token_ids, completion.cuts)
        return talk

    def queue(self, numbers: range) -> list[int]:
        """A long request, and turns of conversations that wait for it; their requests."""
        self.engine.add_request([1], new_tokens_max=WINDOW - 1, stop_token_ids=[])
        return [
            self.engine.add_request(
                [7], new_tokens_max=2, conversation=self.talks.open(f"talk {number}")
            )
            for number in numbers
        ]

    def close(self) -> None:
        self.talks.close()
        self.saver.close()


def waiting(store: MemoryStore) -> list[str]:
    return [name for session in store.sessions.values() for name in session.waiting]


def test_one_call_for_each_change_of_the_queue(model: Model) -> None:
    store = make_store()
    with MemoryClient(store) as client:
        lab = Lab(model, client)
        for number in range(3):
            lab.say(number)
        assert not store.asked(HintRequest)
        requests = lab.queue(range(3))
        for _ in range(5):
            lab.engine.step()
        names = [f"talk {number}" for number in range(3)]
        wait_until(lambda: waiting(store) == names, within_s=SOON_S)
        told = [each for request in store.asked(HintRequest) for each in request.entered]
        assert [each.name for each in told] == names
        assert [each.place for each in told] == sorted(each.place for each in told)
        calls = len(store.asked(HintRequest))
        for _ in range(5):
            lab.engine.step()
        assert len(store.asked(HintRequest)) == calls
        assert lab.engine.abort(requests[1])
        wait_until(lambda: waiting(store) == [names[0], names[2]], within_s=SOON_S)
        lab.engine.run()
        wait_until(lambda: not waiting(store), within_s=SOON_S)
        lab.close()


def test_queue_on_the_devices_is_in_dram_when_it_runs(model: Model, tmp_path: Path) -> None:
    """DRAM has room for a part of the queue: that has to be its head."""
    store = {"store": {"slab_bytes": MIB}}
    with DaemonProcess(tmp_path, overrides=store) as daemon:
        with Client(daemon.socket_path, arena_bytes="16MiB") as client:
            lab = Lab(model, client)
            for number in range(TALKS):
                lab.say(number)
            lab.close()
        daemon.configure({**store, "dram": {"capacity_bytes": 2 * MIB}})
        daemon.restart()
        with Client(daemon.socket_path, arena_bytes="16MiB") as client:
            lab = Lab(model, client)
            # Not in the order in which they were stored.
            requests = lab.queue(range(TALKS - 1, -1, -1))
            lab.engine.step()
            wait_until(lambda: prefetched(client) >= FIRST * CHUNKS, within_s=SOON_S)
            for request in requests[FIRST:]:
                assert lab.engine.abort(request)
            completions = {each.request_id: each for each in lab.engine.run()}
            for request in requests[:FIRST]:
                check_from_dram(completions[request])
            lab.close()


def prefetched(client: Client) -> int:
    return dict(client.admin.stats().counters).get("prefetched_chunks", 0)


def check_from_dram(completion: Completion) -> None:
    assert completion.error is None
    assert completion.restore.restored_tokens >= PROMPT
    assert completion.restore.device_bytes == 0
    assert completion.restore.dram_bytes > 0


def test_a_dead_daemon_changes_no_step(model: Model) -> None:
    """Nobody hears of what waits, and everything is computed."""
    store = make_store()
    with MemoryClient(store) as client:
        lab = Lab(model, client)
        for number in range(2):
            lab.say(number)
        requests = lab.queue(range(2))
        expected = {each.request_id: each.token_ids for each in lab.engine.run()}
        requests_dead = lab.queue(range(2))
        store.kill()
        got = {each.request_id: each for each in lab.engine.run()}
        for alive, dead in zip(requests, requests_dead, strict=True):
            assert got[dead].error is None
            assert got[dead].token_ids == expected[alive]
        lab.close()
