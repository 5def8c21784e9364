"""Clients that put, read, delete and append until the daemon is killed under them."""

import random
import threading
import time
from dataclasses import dataclass, field

from kvstored_client import Ack, Client, Placement, PutOutcome, StoreError
from tests.faults.kill.conversations import Conversations
from tests.faults.kill.killable import KillableDaemon
from tests.faults.kill.ledger import Ledger, ViolationError
from tests.faults.kill.payload import (
    LARGE_EVERY,
    SMALL,
    chunk_bytes,
    fetch,
    key_of,
    layout_of,
    new_chunk,
    payload_of,
)
from tests.support.waiting import PATIENCE_S

BATCH_MAX = 6
STAGED_SHARE = 0.1
"""Puts that do not wait until they are durable; a kill may take those."""
NUMBERS_PER_WRITER = LARGE_EVERY * 1000
SEQUENCE_NAMES = ("a", "b", "c", "d")
PROMPT_TOKENS_MAX = 100
APPENDED_TOKENS_MAX = 256
"""A sequence that is longer is cut."""
APPENDED_CHUNKS_MAX = 60
"""Behind so many chunks all sequences start over: where nothing is evicted they must have room."""


@dataclass(slots=True)
class Life:
    """One life of the daemon; ``is_over`` is set before it is killed.

    ``answers`` has one for each call that was answered, and enough when one could not be.
    """

    answers: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    is_over: threading.Event = field(default_factory=threading.Event)


def put(client: Client, ledger: Ledger, numbers: list[int], *, ack: Ack = Ack.DURABLE) -> None:
    """Puts chunks of one layout and keeps the ledger; raises StoreError without an answer."""
    layout = layout_of(numbers[0])
    one_bytes = chunk_bytes(numbers[0])
    region = client.allocate(one_bytes * len(numbers))
    assert region is not None
    with region:
        generations = [ledger.put_begins(number) for number in numbers]
        for index, (number, generation) in enumerate(zip(numbers, generations, strict=True)):
            start = index * one_bytes
            region.view[start : start + one_bytes] = payload_of(number, generation)
        chunks = [new_chunk(number) for number in numbers]
        report = client.put(layout, chunks, Placement.contiguous(region, layout), ack=ack)
    if ack is not Ack.DURABLE:
        return
    for number, generation, result in zip(numbers, generations, report.results, strict=True):
        if result.outcome is PutOutcome.STORED:
            ledger.is_durable(number, generation)
        elif result.outcome is PutOutcome.EXISTED:
            ledger.existed_durably(number, generation)


def delete(client: Client, ledger: Ledger, numbers: list[int]) -> None:
    """Deletes chunks and keeps the ledger; raises StoreError without an answer."""
    ledger.delete_begins(numbers)
    client.delete([key_of(number) for number in numbers])
    ledger.deleted(numbers)


def look(client: Client, ledger: Ledger, life: Life, numbers: list[int]) -> None:
    """Reads chunks and judges them; what the killed daemon did not bring says nothing."""
    ledger.used(len(numbers))
    for number, content in fetch(client, numbers).items():
        if content is not None or not life.is_over.is_set():
            ledger.seen(number, content, settles=False)


class ChurningWriter:
    """Puts, deletes, puts again and reads the same few chunks: nothing is ever evicted."""

    def __init__(self, ledger: Ledger, *, index: int, seed: int, number_count: int) -> None:
        first = index * NUMBERS_PER_WRITER
        # The first of them has the large layout.
        self._numbers = range(first, first + number_count)
        self._ledger = ledger
        self._random = random.Random(f"{seed}/{index}")

    def step(self, client: Client, life: Life) -> None:
        """One call."""
        draw = self._random.random()
        numbers = self._batch()
        if draw < 0.25:
            known = [number for number in numbers if self._ledger.may_exist(number)]
            look(client, self._ledger, life, known)
        elif draw < 0.5:
            delete(client, self._ledger, numbers)
        else:
            is_staged = self._random.random() < STAGED_SHARE
            put(client, self._ledger, numbers, ack=Ack.STAGED if is_staged else Ack.DURABLE)

    def _batch(self) -> list[int]:
        numbers = self._random.sample(self._numbers, self._random.randint(1, BATCH_MAX))
        # A call has one layout.
        return [number for number in numbers if number % LARGE_EVERY] or numbers


class EvictingWriter:
    """Puts ever new chunks into a full store, and reads the newest."""

    def __init__(self, ledger: Ledger, *, index: int, seed: int, kept_count: int) -> None:
        self._next = index * NUMBERS_PER_WRITER + 1
        self._ledger = ledger
        self._kept: list[int] = []
        self._kept_count = kept_count
        self._random = random.Random(f"{seed}/{index}")

    def step(self, client: Client, life: Life) -> None:
        """One call."""
        if self._kept and self._random.random() < 0.15:
            look(client, self._ledger, life, self._random.sample(self._kept[-8:], 1))
            return
        count = self._random.randint(1, BATCH_MAX)
        numbers: list[int] = []
        while len(numbers) < count:
            if self._next % LARGE_EVERY:
                numbers.append(self._next)
            self._next += 1
        self._kept += numbers
        put(client, self._ledger, numbers)
        self._ledger.forget(self._kept[: -self._kept_count])
        del self._kept[: -self._kept_count]


class AppendingWriter:
    """Lets a few sequences grow row by row, flushes, cuts and forks them, and starts over."""

    def __init__(self, conversations: Conversations, *, seed: int) -> None:
        self._conversations = conversations
        self._random = random.Random(f"{seed}/append")

    def step(self, client: Client, life: Life) -> None:
        """One call, or all that it takes to start over."""
        _ = life
        conversations, models = self._conversations, self._conversations.models
        if conversations.key_count > APPENDED_CHUNKS_MAX:
            conversations.retire(client)
            return
        if len(models) < 2:
            self._make(client, None)
            return
        name = self._random.choice(list(models))
        draw = self._random.random()
        if models[name].length > APPENDED_TOKENS_MAX or draw < 0.08:
            self._cut(client, name)
        elif draw < 0.55:
            chosen = self._random.sample(list(models), self._random.randint(1, len(models)))
            conversations.append(client, {one: self._row_count() for one in chosen})
        elif draw < 0.85:
            conversations.flush(client, name)
        elif draw < 0.95:
            self._make(client, name)
        else:
            conversations.delete(client, name)

    def _row_count(self) -> int:
        """Most rows come one by one, some as those of a prompt."""
        return self._random.choice((1, 1, 2, self._random.randint(1, PROMPT_TOKENS_MAX)))

    def _make(self, client: Client, original: str | None) -> None:
        models = self._conversations.models
        free = [name for name in SEQUENCE_NAMES if name not in models]
        if not free:
            return
        if original is None or self._random.random() < 0.3:
            self._conversations.create(client, free[0])
        else:
            keep_chunks = self._random.randint(0, models[original].complete // SMALL.chunk_tokens)
            self._conversations.fork(client, original, free[0], keep_chunks)

    def _cut(self, client: Client, name: str) -> None:
        """Inside the open tail, or to a complete chunk: any other one may be evicted."""
        model = self._conversations.models[name]
        least = model.complete if self._conversations.is_framed(name) else model.length
        chunk = self._random.randint(0, model.complete // SMALL.chunk_tokens)
        length = self._random.choice(
            (self._random.randint(least, model.length), chunk * SMALL.chunk_tokens)
        )
        self._conversations.truncate(client, name, length)


Writer = ChurningWriter | EvictingWriter | AppendingWriter


def run_until_killed(
    daemon: KillableDaemon, writers: list[Writer], *, answers: int, pause_s: float
) -> None:
    """Lets writers work and kills the daemon; raises what a writer raised.

    The kill comes ``pause_s`` after so many answers: a slow machine has its load, too.
    """
    life = Life()
    failures: list[BaseException] = []

    def work(writer: Writer) -> None:
        try:
            with daemon.client() as client:
                while not life.is_over.is_set():
                    writer.step(client, life)
                    life.answers.release()
        except StoreError as error:
            if not life.is_over.is_set():
                failures.append(ViolationError(f"a call failed before the kill: {error!r}"))
        except BaseException as error:
            failures.append(error)
        life.answers.release(answers)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for _ in range(answers):
        life.answers.acquire(timeout=PATIENCE_S)
    time.sleep(pause_s)
    life.is_over.set()
    daemon.kill()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
