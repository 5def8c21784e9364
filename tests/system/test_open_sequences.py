"""Sequences that grow token by token, against a plain model, over kills of the daemon.

Nothing is flushed for a kill, and two threads append and flush while it comes: behind it each
sequence has at least what was said to be durable, and whatever more it has ends where a chunk or
a flush did and has the right bytes.

Fails when ``Sequences.flush`` does not store the record (seen: "0 of 1 tokens are left"), when
``SequenceRecorder._store`` does not (seen: "15 of 53 tokens are left"), when ``SequenceState.cut``
keeps a flushed tail that holds more (seen: "4 tokens are durable" of none), when a tail is loaded
with the geometry of a complete chunk and when one row too few is moved (seen: other bytes), and
when a fork shares the frame of its original (seen: INTERNAL). A record that runs a moment ahead of
its chunk is found by the state machine of ``tests/faults/media``, not here.
"""

import random
import threading
import time
from pathlib import Path

from kvstored_client import (
    AppendItem,
    AppendReport,
    Client,
    Placement,
    SequenceInfo,
    StoreError,
)
from tests.support import labs
from tests.support.daemon import DaemonProcess
from tests.support.rows import MIXED, TOKEN_IDS, Rows
from tests.support.scale import Scale
from tests.support.seeds import seed
from tests.support.sequence_model import SequenceModel
from tests.support.waiting import PATIENCE_S, wait_until

CHUNK_TOKENS = MIXED.chunk_tokens
ROWS = Rows()
LONGEST_APPEND = 40
SEQUENCES_MAX = 6
ARENA_BYTES = 8 << 20
WRITERS = 2
WRITING_S = 0.15
"""How long threads write before a kill, at most."""


def connect(daemon: DaemonProcess) -> Client:
    return Client(daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True)


def keys_of(model: SequenceModel) -> list[bytes]:
    """Keys of the complete chunks that are not dropped; they chain over all tokens."""
    return ROWS.keys(model.dropped + model.tokens)[len(model.dropped) // CHUNK_TOKENS :]


def tail_key_of(model: SequenceModel) -> bytes:
    return ROWS.tail_key(model.dropped + model.tokens)


def append_step(client: Client, added: list[tuple[str, SequenceModel, list[int]]]) -> AppendReport:
    """One step: tokens for several sequences, which the models have from then on."""
    step: list[int] = []
    items = []
    for name, model, tokens in added:
        before = len(model.tokens)
        model.tokens += tokens
        items.append(
            AppendItem(
                sequence=name,
                first_token=before,
                first_row=len(step),
                token_count=len(tokens),
                keys=keys_of(model)[before // CHUNK_TOKENS :],
            )
        )
        step += tokens
    payload = ROWS.snapshot(step)
    region = client.allocate(len(payload))
    assert region is not None
    with region:
        region.view[:] = payload
        return client.append(MIXED, region, len(step), items)


def some_tokens(choices: random.Random) -> list[int]:
    """The tokens of a step, mostly few."""
    count = choices.choice([1, 1, 2, choices.randint(1, LONGEST_APPEND)])
    return [choices.randrange(TOKEN_IDS) for _ in range(count)]


def flush_all(client: Client, name: str, model: SequenceModel) -> None:
    """Flushes a whole sequence; without an answer it may be durable or not."""
    length = len(model.tokens)
    model.flushed.add(length)
    info = client.sequences.flush(name, tail_key_of(model), expected_tokens=length)
    assert info is not None
    assert info.durable_tokens == length
    assert info.tail_key == tail_key_of(model)
    model.survives(length)


class Writer:
    """Appends to a sequence of its own and flushes it, on a thread, until the daemon is gone."""

    def __init__(self, daemon: DaemonProcess, name: str, choices: random.Random) -> None:
        self.name = name
        self.model = SequenceModel(CHUNK_TOKENS)
        self.is_killed = threading.Event()
        self.is_answered = threading.Event()
        """Set by the answer to each flush."""
        self._random = choices
        self._client = connect(daemon)
        assert self._client.sequences.create(name, MIXED)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        try:
            while True:
                if self._random.random() < 0.3:
                    flush_all(self._client, self.name, self.model)
                    self.is_answered.set()
                    continue
                added = some_tokens(self._random)
                report = append_step(self._client, [(self.name, self.model, added)])
                assert report.results[0].is_taken, report
        except StoreError:
            if not self.is_killed.is_set():
                raise


class Walk:
    """Random operations on sequences of one daemon, each checked against the model."""

    def __init__(self, daemon: DaemonProcess, choices: random.Random) -> None:
        self.daemon = daemon
        self.random = choices
        self.models: dict[str, SequenceModel] = {}
        self.made = 0
        self.lost_tokens = 0
        self.client = connect(daemon)

    def step(self) -> None:
        actions = [self.append] * 8 + [self.flush, self.fork, self.front, self.back] * 2
        actions += [self.tokens] * 3 + [self.delete, self.reconnect, self.check_one]
        if len(self.models) < 2:
            self.create()
        self.random.choice(actions)()
        for name, model in self.models.items():
            info = self.info(name)
            assert info.staged_tokens == len(model.tokens), name
            assert info.tail_tokens == len(model.tokens) % CHUNK_TOKENS
            model.survives(info.durable_tokens)
            assert list(info.keys) == keys_of(model)[: len(info.keys)]
            assert info.is_ephemeral == model.is_ephemeral
            assert not info.is_stopped

    def info(self, name: str) -> SequenceInfo:
        info = self.client.sequences.get(name)
        assert info is not None
        return info

    def name(self) -> str:
        return self.random.choice(list(self.models))

    def new_name(self) -> str:
        self.made += 1
        return f"sequence-{self.made}"

    def create(self) -> None:
        name, is_ephemeral = self.new_name(), self.random.random() < 0.3
        assert self.client.sequences.create(name, MIXED, ephemeral=is_ephemeral)
        self.models[name] = SequenceModel(CHUNK_TOKENS, is_ephemeral=is_ephemeral)

    def append(self) -> None:
        """One step for some sequences, a few tokens for most of them."""
        names = self.random.sample(list(self.models), self.random.randint(1, len(self.models)))
        report = append_step(
            self.client,
            [(name, self.models[name], some_tokens(self.random)) for name in names],
        )
        for name, result in zip(names, report.results, strict=True):
            assert result.is_taken, result
            assert result.length_tokens == len(self.models[name].tokens)

    def flush(self) -> None:
        name = self.name()
        flush_all(self.client, name, self.models[name])

    def fork(self) -> None:
        if len(self.models) >= SEQUENCES_MAX:
            self.delete()
        name, new_name = self.name(), self.new_name()
        model = self.models[name]
        keep_chunks = self.random.randint(0, model.complete)
        info = self.client.sequences.fork(name, new_name, keep_chunks=keep_chunks)
        assert info is not None
        self.models[new_name] = model.fork(keep_chunks)

    def front(self) -> None:
        name = self.name()
        model = self.models[name]
        chunks = self.random.randint(0, model.complete)
        assert self.client.sequences.truncate_front(name, chunks)
        model.cut_front(chunks)

    def back(self) -> None:
        name = self.name()
        model = self.models[name]
        chunks = self.random.randint(0, model.complete)
        assert self.client.sequences.truncate_back(name, chunks)
        if chunks:
            model.cut((model.complete - chunks) * CHUNK_TOKENS)

    def tokens(self) -> None:
        name = self.name()
        model = self.models[name]
        drop = min(len(model.tokens), self.random.choice([1, 3, 17, 40]))
        assert self.client.sequences.truncate_tokens(name, drop)
        if drop:
            model.cut(len(model.tokens) - drop)

    def delete(self) -> None:
        if len(self.models) > 1:
            name = self.name()
            assert self.client.sequences.delete(name)
            assert self.client.sequences.get(name) is None
            del self.models[name]

    def reconnect(self) -> None:
        """What was not flushed is lost, up to what became durable by itself."""
        self.client.close()
        self.client = connect(self.daemon)
        # The end of the old session is heard of behind the call.
        wait_until(lambda: self.client.admin.stats().arenas_used_bytes == ARENA_BYTES)
        self.forget_what_is_lost()

    def kill(self) -> None:
        """Kills the daemon while others write; what is left is read before anything is flushed."""
        writers = [
            Writer(self.daemon, self.new_name(), random.Random(self.random.random()))
            for _ in range(WRITERS)
        ]
        time.sleep(self.random.uniform(0, WRITING_S))
        if self.random.random() < 0.5:
            # At once behind an answer: what it says must be true already.
            writers[0].is_answered.clear()
            writers[0].is_answered.wait(PATIENCE_S)
        for writer in writers:
            writer.is_killed.set()
        self.daemon.kill()
        for writer in writers:
            writer.join()
            self.models[writer.name] = writer.model
        self.client.close()
        self.daemon.start()
        self.client = connect(self.daemon)
        self.forget_what_is_lost()
        for name in self.models:
            info = self.info(name)
            assert info.durable_tokens == info.staged_tokens, name
            self.read_back(name)
        while len(self.models) > SEQUENCES_MAX:
            self.delete()

    def forget_what_is_lost(self) -> None:
        for name in [name for name, model in self.models.items() if model.is_ephemeral]:
            assert self.client.sequences.get(name) is None
            del self.models[name]
        for name, model in self.models.items():
            self.lost_tokens += model.lose(self.info(name).staged_tokens)

    def check_one(self) -> None:
        self.check(self.name())

    def check_all(self) -> None:
        for name in self.models:
            self.check(name)

    def check(self, name: str) -> None:
        """Reads everything of a sequence back; its tail as the short chunk that it becomes."""
        flush_all(self.client, name, self.models[name])
        self.read_back(name)

    def read_back(self, name: str) -> None:
        """Reads the chunks of a sequence that has nothing else."""
        model = self.models[name]
        keys = [*keys_of(model), tail_key_of(model)]
        info = self.info(name)
        assert [*info.keys, info.tail_key] == keys, name
        for index, key in enumerate(filter(None, keys)):
            part = model.tokens[index * CHUNK_TOKENS :][:CHUNK_TOKENS]
            region = self.client.allocate(Placement.contiguous_bytes(MIXED, 1))
            assert region is not None
            with region:
                placement = Placement.contiguous(region, MIXED)
                with self.client.read(MIXED, [key], placement) as read:
                    assert read.wait().resident == (True,), (name, index)
                for layer, expected in enumerate(ROWS.slices(part)):
                    start = layer * MIXED.layer_stride
                    assert bytes(region.view[start : start + len(expected)]) == expected

    def close(self) -> None:
        self.client.close()


@labs.WALKED_KILLS.scales("scale")
def test_random_walk(tmp_path: Path, scale: Scale) -> None:
    with DaemonProcess(tmp_path, overrides={"dram": {"capacity_bytes": 24 << 20}}) as daemon:
        walk = Walk(daemon, random.Random(seed()))
        for _ in range(labs.WALKED_KILLS.size(scale)):
            for _ in range(labs.WALK_STEPS.size(scale)):
                walk.step()
            if walk.random.random() < 0.2:
                walk.check_all()
            walk.kill()
        walk.check_all()
        assert walk.lost_tokens, "no kill met a token that was not flushed"
        walk.close()
        assert "Traceback" not in daemon.log, daemon.log[-4000:]


def test_a_stop_in_order_keeps_what_was_complete(daemon: DaemonProcess) -> None:
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True) as client:
        assert client.sequences.create("s", MIXED)
        tokens = list(range(40))
        payload = ROWS.snapshot(tokens)
        region = client.allocate(len(payload))
        assert region is not None
        region.view[:] = payload
        item = AppendItem(
            sequence="s", first_token=0, first_row=0, token_count=40, keys=ROWS.keys(tokens)
        )
        client.append(MIXED, region, 40, [item])
        assert daemon.terminate() == 0
    daemon.start()
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True) as client:
        info = client.sequences.get("s")
        assert info is not None
        assert (info.durable_tokens, list(info.keys)) == (32, ROWS.keys(tokens))
