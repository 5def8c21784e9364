"""Sequences that grow token by token, against a plain model, over kills of the daemon.

Fails when a flush does not store the record (seen: 4 tokens flushed, 0 left after a kill), when a
tail is loaded with the geometry of a complete chunk and when one row too few is moved (seen: other
bytes), and when a fork shares the frame of its original (seen: INTERNAL).
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kvstored_client import AppendItem, Client, Placement, SequenceInfo
from tests.faults.seeds import seed
from tests.support.daemon import DaemonProcess
from tests.support.rows import MIXED, TOKEN_IDS, Rows
from tests.support.waiting import wait_until

CHUNK_TOKENS = MIXED.chunk_tokens
ROWS = Rows()
LONGEST_APPEND = 40
SEQUENCES_MAX = 6
ARENA_BYTES = 8 << 20


@dataclass(slots=True)
class Model:
    """What a sequence must hold: all tokens since it was made, of which some are dropped.

    At least ``safe`` of ``tokens`` survive a kill.
    """

    dropped: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    safe: int = 0
    is_ephemeral: bool = False

    def keys(self) -> list[bytes]:
        """Keys of the complete chunks that are not dropped; they chain over all tokens."""
        return ROWS.keys(self.dropped + self.tokens)[len(self.dropped) // CHUNK_TOKENS :]

    def tail_key(self) -> bytes:
        return ROWS.tail_key(self.dropped + self.tokens)


class Walk:
    """Random operations on sequences of one daemon, each checked against the model."""

    def __init__(self, daemon: DaemonProcess, choices: random.Random) -> None:
        self.daemon = daemon
        self.random = choices
        self.models: dict[str, Model] = {}
        self.made = 0
        self.client = self.connect()

    def connect(self) -> Client:
        return Client(self.daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True)

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
            assert model.safe <= info.durable_tokens <= len(model.tokens)
            assert list(info.keys) == model.keys()[: len(info.keys)]
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
        self.models[name] = Model(is_ephemeral=is_ephemeral)

    def append(self) -> None:
        """One step for some sequences, a few tokens for most of them."""
        names = self.random.sample(list(self.models), self.random.randint(1, len(self.models)))
        step: list[int] = []
        items = []
        for name in names:
            model = self.models[name]
            count = self.random.choice([1, 1, 2, self.random.randint(1, LONGEST_APPEND)])
            before = len(model.tokens)
            added = [self.random.randrange(TOKEN_IDS) for _ in range(count)]
            model.tokens += added
            items.append(
                AppendItem(
                    sequence=name,
                    first_token=before,
                    first_row=len(step),
                    token_count=count,
                    keys=model.keys()[before // CHUNK_TOKENS :],
                )
            )
            step += added
        payload = ROWS.snapshot(step)
        region = self.client.allocate(len(payload))
        assert region is not None
        with region:
            region.view[:] = payload
            report = self.client.append(MIXED, region, len(step), items)
        for name, result in zip(names, report.results, strict=True):
            assert result.is_taken, result
            assert result.length_tokens == len(self.models[name].tokens)

    def flush(self) -> None:
        name = self.name()
        model = self.models[name]
        info = self.client.sequences.flush(
            name, model.tail_key(), expected_tokens=len(model.tokens)
        )
        assert info is not None
        assert info.durable_tokens == len(model.tokens)
        assert info.tail_key == model.tail_key()
        model.safe = len(model.tokens)

    def fork(self) -> None:
        if len(self.models) >= SEQUENCES_MAX:
            self.delete()
        name, new_name = self.name(), self.new_name()
        model = self.models[name]
        keep_chunks = self.random.randint(0, len(model.tokens) // CHUNK_TOKENS)
        info = self.client.sequences.fork(name, new_name, keep_chunks=keep_chunks)
        assert info is not None
        tokens = model.tokens[: keep_chunks * CHUNK_TOKENS or None]
        complete = len(tokens) // CHUNK_TOKENS * CHUNK_TOKENS
        self.models[new_name] = Model(
            dropped=list(model.dropped),
            tokens=list(tokens),
            safe=min(max(model.safe, complete), len(tokens)),
            is_ephemeral=model.is_ephemeral,
        )

    def front(self) -> None:
        name = self.name()
        model = self.models[name]
        chunks = self.random.randint(0, len(model.tokens) // CHUNK_TOKENS)
        assert self.client.sequences.truncate_front(name, chunks)
        cut = chunks * CHUNK_TOKENS
        model.dropped += model.tokens[:cut]
        del model.tokens[:cut]
        model.safe = max(0, model.safe - cut)

    def back(self) -> None:
        name = self.name()
        model = self.models[name]
        chunks = self.random.randint(0, len(model.tokens) // CHUNK_TOKENS)
        assert self.client.sequences.truncate_back(name, chunks)
        if chunks:
            self.cut(model, (len(model.tokens) // CHUNK_TOKENS - chunks) * CHUNK_TOKENS)

    def tokens(self) -> None:
        name = self.name()
        model = self.models[name]
        drop = min(len(model.tokens), self.random.choice([1, 3, 17, 40]))
        assert self.client.sequences.truncate_tokens(name, drop)
        if drop:
            self.cut(model, len(model.tokens) - drop)

    def cut(self, model: Model, length: int) -> None:
        """A flushed tail is gone that holds more than is left, or that a chunk has replaced."""
        complete = length // CHUNK_TOKENS
        if length < model.safe or complete < len(model.tokens) // CHUNK_TOKENS:
            model.safe = min(model.safe, complete * CHUNK_TOKENS)
        del model.tokens[length:]

    def delete(self) -> None:
        if len(self.models) > 1:
            name = self.name()
            assert self.client.sequences.delete(name)
            assert self.client.sequences.get(name) is None
            del self.models[name]

    def reconnect(self) -> None:
        """What was not flushed is lost, up to what became durable by itself."""
        self.client.close()
        self.client = self.connect()
        # The end of the old session is heard of behind the call.
        wait_until(lambda: self.client.admin.stats().arenas_used_bytes == ARENA_BYTES)
        self.forget_what_is_lost()

    def kill(self) -> None:
        self.check_all()
        self.client.close()
        self.daemon.restart()
        self.client = self.connect()
        self.forget_what_is_lost()

    def forget_what_is_lost(self) -> None:
        for name in [name for name, model in self.models.items() if model.is_ephemeral]:
            assert self.client.sequences.get(name) is None
            del self.models[name]
        for name, model in self.models.items():
            left = self.info(name).staged_tokens
            assert model.safe <= left <= len(model.tokens)
            del model.tokens[left:]

    def check_one(self) -> None:
        self.check(self.name())

    def check_all(self) -> None:
        for name in self.models:
            self.check(name)

    def check(self, name: str) -> None:
        """Reads everything of a sequence back; its tail as the short chunk that it becomes."""
        model = self.models[name]
        self.client.sequences.flush(name, model.tail_key(), expected_tokens=len(model.tokens))
        model.safe = len(model.tokens)
        keys = [*model.keys(), model.tail_key()]
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


@pytest.mark.parametrize(
    ("rounds", "steps"), [(3, 60), pytest.param(20, 300, marks=pytest.mark.long)]
)
def test_random_walk(tmp_path: Path, rounds: int, steps: int) -> None:
    with DaemonProcess(tmp_path, overrides={"dram": {"capacity_bytes": 24 << 20}}) as daemon:
        walk = Walk(daemon, random.Random(seed()))
        for _ in range(rounds):
            for _ in range(steps):
                walk.step()
            walk.kill()
        walk.check_all()
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
