"""What the store hears of requests that wait in vLLM."""

import time
from collections.abc import Callable
from concurrent.futures import Future

from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity, rank_key
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.lookup import PendingLookup
from engine_adapters.vllm.scheduler_side.waiting_hints import WaitingHints
from kvstored_client import LayerState, QueueEntry, StateKind, StateLayout
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.support.sharing import ALONE
from tests.support.waiting import SOON_S, wait_until

CHUNK_TOKENS, CHUNKS = 64, 3
LAYOUTS = tuple(
    StateLayout(
        model=f"rank {rank}",
        dtype="float32",
        layers=(LayerState(StateKind.KV, 64),),
        chunk_tokens=CHUNK_TOKENS,
    )
    for rank in range(2)
)
STEP_S_MAX = 0.002
"""What 200 waiting requests may cost a step: 0.7 ms where a look at all others for each of them
costs 2.6 ms, keys made by the scheduler's thread 5 ms, and a call of the store for each 11 ms."""
REPETITIONS = 10


class Heard:
    """A teller that keeps who waits."""

    def __init__(self) -> None:
        self.entries: dict[str, QueueEntry] = {}

    def enter(self, entry: QueueEntry) -> None:
        self.entries[entry.name] = entry

    def leave(self, name: str) -> None:
        self.entries.pop(name, None)

    def close(self) -> None:
        self.entries.clear()

    def in_order(self) -> list[QueueEntry]:
        return sorted(self.entries.values(), key=lambda entry: (entry.place, entry.name))


def chain_of(token_id: int) -> KeyChain:
    chain = KeyChain(
        namespace="n", fingerprint="m", identity=RequestIdentity(), chunk_tokens=CHUNK_TOKENS
    )
    chain.extend([token_id] * CHUNK_TOKENS * (CHUNKS + 1))
    return chain


def question(answer: Future[Found]) -> PendingLookup:
    return PendingLookup(answer, time.monotonic() + SOON_S)


def answered(token_id: int, chunk_count: int = CHUNKS) -> PendingLookup:
    answer: Future[Found] = Future()
    answer.set_result(Found(chain=chain_of(token_id), chunk_count=chunk_count))
    return question(answer)


def keys_of(token_id: int, rank: int) -> list[bytes]:
    keys = chain_of(token_id).extend(())[:CHUNKS]
    return [rank_key(key, LAYOUTS[rank].layout_id) for key in keys]


def soon(condition: Callable[[], bool]) -> None:
    wait_until(condition, within_s=SOON_S)


def test_what_the_store_has_of_a_request_waits_for_each_rank() -> None:
    heard = Heard()
    hints = WaitingHints(heard, LAYOUTS)
    hints.wait("a", answered(1))
    hints.wait("unstored", answered(2, 0))
    hints.wait("b", answered(3))
    soon(lambda: len(heard.entries) == 4)
    entries = heard.in_order()
    assert [list(entry.keys) for entry in entries] == [
        keys_of(token_id, rank) for token_id in (1, 3) for rank in (0, 1)
    ]
    assert [entry.layout for entry in entries] == [*LAYOUTS, *LAYOUTS]
    hints.leave("a")
    hints.leave("never heard of")
    assert [list(entry.keys) for entry in heard.in_order()] == [keys_of(3, 0), keys_of(3, 1)]
    hints.close()


def test_a_preempted_request_waits_before_all_others() -> None:
    heard = Heard()
    hints = WaitingHints(heard, LAYOUTS[:1])
    hints.wait("a", answered(1))
    hints.wait_again("b", Found(chain=chain_of(2), chunk_count=CHUNKS))
    hints.wait_again("c", Found(chain=chain_of(3), chunk_count=CHUNKS))
    hints.wait_again("unknown", Found())
    soon(lambda: len(heard.entries) == 3)
    assert [list(each.keys) for each in heard.in_order()] == [keys_of(n, 0) for n in (3, 2, 1)]
    hints.close()


def test_an_answer_after_the_request_has_left_tells_nothing() -> None:
    heard = Heard()
    hints = WaitingHints(heard, LAYOUTS[:1])
    late: Future[Found] = Future()
    hints.wait("a", question(late))
    hints.leave("a")
    late.set_result(Found(chain=chain_of(1), chunk_count=CHUNKS))
    hints.wait("b", answered(2))
    soon(lambda: bool(heard.entries))
    assert [list(each.keys) for each in heard.in_order()] == [keys_of(2, 0)]
    hints.close()


@ALONE
def test_two_hundred_requests_cost_a_step_little() -> None:
    """That all come in one step, and that all leave in one; steps between cost nothing."""
    store = MemoryStore()
    waits_s, leaves_s = [], []
    with MemoryClient(store) as client:
        hints = WaitingHints.of_client(client, LAYOUTS[:1])
        for _ in range(REPETITIONS):
            answers: list[Future[Found]] = [Future() for _ in range(200)]
            questions = [question(answer) for answer in answers]
            began_s = time.thread_time()
            for number, each in enumerate(questions):
                hints.wait(f"{number}", each)
            waits_s.append(time.thread_time() - began_s)
            for number, answer in enumerate(answers):
                answer.set_result(Found(chain=chain_of(number), chunk_count=CHUNKS))
            soon(lambda: sum(len(one.waiting) for one in store.sessions.values()) == 200)
            began_s = time.thread_time()
            for number in range(200):
                hints.leave(f"{number}")
            leaves_s.append(time.thread_time() - began_s)
            soon(lambda: not any(one.waiting for one in store.sessions.values()))
        hints.close()
    # The least of each: what else the machine does adds to the others.
    assert min(waits_s) < STEP_S_MAX
    assert min(leaves_s) < STEP_S_MAX
