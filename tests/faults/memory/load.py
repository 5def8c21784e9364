"""A client that does everything, well and badly, and whose every step the daemon must forget."""

import contextlib
import random
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Order,
    Placement,
    StateKind,
    StateLayout,
    StoreError,
)
from tests.faults.memory.growing import GrowingLoad
from tests.faults.memory.talking import TalkingLoad

PLAIN_LAYOUTS = tuple(
    StateLayout(
        model=f"soak {token_bytes}",
        dtype="float32",
        layers=(LayerState(StateKind.KV, token_bytes),) * 4,
        chunk_tokens=64,
    )
    for token_bytes in (64, 256, 1000)
)
ENCODED = replace(PLAIN_LAYOUTS[1], codec="soak")
LAYOUTS = (*PLAIN_LAYOUTS, ENCODED)
CHUNKS = 4
KEYS = 4000
"""More than the devices hold, so that puts evict."""
SEQUENCES = 40
ARENA_BYTES = 2 * 1024 * 1024
STEPS_OF_A_SESSION = 60


class Load:
    """Random steps through sessions of its own. Not thread-safe; ``step_count`` counts steps."""

    def __init__(self, path: Path, *, seed: int) -> None:
        self.step_count = 0
        self._path = path
        self._source = random.Random(seed)
        self._payload = np.random.default_rng(seed).bytes(ARENA_BYTES)
        growing = GrowingLoad(PLAIN_LAYOUTS, source=self._source, payload=self._payload)
        self._talking = TalkingLoad(
            PLAIN_LAYOUTS[0], source=self._source, payload=self._payload, name=f"talk {seed}"
        )
        self._steps: list[Callable[[Client], None]] = [
            *[self._put] * 8,
            *[self._read] * 8,
            *[self._cancelled_read] * 2,
            *[self._late_read] * 2,
            *[self._match] * 2,
            *[self._pin] * 2,
            self._delete,
            *[self._change_sequence] * 3,
            *[growing.append] * 8,
            *[growing.flush] * 3,
            *[growing.cut] * 3,
            *[self._talking.step] * 6,
            *[self._fail] * 2,
            self._bad_handshake,
        ]

    @property
    def turn_count(self) -> int:
        """Finished turns of conversations."""
        return self._talking.turn_count

    def session(self, deadline: float) -> None:
        """One session of some steps; it ends in order or by hanging up."""
        client = Client(self._path, arena_bytes=ARENA_BYTES, name="soak")
        try:
            for _ in range(self._source.randint(1, STEPS_OF_A_SESSION)):
                if time.monotonic() > deadline:
                    return
                self._source.choice(self._steps)(client)
                self.step_count += 1
            if self._source.random() < 0.3:
                # Hangs up with a read and a lease open.
                self._start_read(client)
                client.pin(LAYOUTS[0], self._some_keys(), lease_ms=600_000)
        finally:
            client.close()

    def _key(self) -> bytes:
        return self._source.randrange(KEYS).to_bytes(32, "big")

    def _some_keys(self) -> list[bytes]:
        return [self._key() for _ in range(self._source.randint(1, CHUNKS))]

    def _layout(self) -> StateLayout:
        return self._source.choice(LAYOUTS)

    def _put(self, client: Client) -> None:
        layout, keys = self._layout(), self._some_keys()
        region = client.allocate(Placement.contiguous_bytes(layout, len(keys)))
        if region is None:
            return
        with region:
            region.view[:] = self._payload[: region.byte_count]
            client.put(
                layout,
                [
                    NewChunk(
                        key=key,
                        token_count=self._source.choice([1, layout.chunk_tokens]),
                        stripe=self._source.randrange(8),
                        slice_bytes=self._slice_bytes(layout),
                    )
                    for key in keys
                ],
                Placement.contiguous(region, layout),
                ack=self._source.choice([Ack.STAGED, Ack.DURABLE]),
            )

    def _slice_bytes(self, layout: StateLayout) -> list[int]:
        """Lengths below the layout's bound, where slices have lengths of their own."""
        if not layout.is_encoded:
            return []
        return [
            self._source.randint(1, layout.slice_bytes(layer))
            for layer in range(layout.layer_count)
        ]

    def _start_read(self, client: Client, *, timeout_ms: int = 30_000) -> None:
        self._read(client, timeout_ms=timeout_ms, waits=False)

    def _read(self, client: Client, *, timeout_ms: int = 30_000, waits: bool = True) -> None:
        layout, keys = self._layout(), self._some_keys()
        region = client.allocate(Placement.contiguous_bytes(layout, len(keys)))
        if region is None:
            return
        first_layer = self._source.choice([0, 0, 1])
        read = client.read(
            layout,
            keys,
            Placement.contiguous(region, layout),
            order=self._source.choice(list(Order)),
            first_layer=first_layer,
            timeout_ms=timeout_ms,
        )
        if waits:
            read.wait()
        read.close()
        region.release()

    def _cancelled_read(self, client: Client) -> None:
        self._start_read(client)

    def _late_read(self, client: Client) -> None:
        self._start_read(client, timeout_ms=1)

    def _match(self, client: Client) -> None:
        match = client.match(
            self._layout(), self._some_keys(), lease_ms=self._source.choice([0, 50])
        )
        if match.lease is not None and self._source.random() < 0.5:
            match.lease.release()

    def _pin(self, client: Client) -> None:
        lease = client.pin(self._layout(), self._some_keys(), lease_ms=50)
        if lease is not None and self._source.random() < 0.5:
            lease.release()

    def _delete(self, client: Client) -> None:
        client.delete(self._some_keys())

    def _change_sequence(self, client: Client) -> None:
        name = f"conversation {self._source.randrange(SEQUENCES)}"
        sequences = client.sequences
        found = sequences.get(name)
        if found is None:
            sequences.create(name, self._layout())
        elif len(found.keys) > 20:
            sequences.fork(name, f"{name} fork", keep_chunks=5)
            sequences.truncate_front(name, 5)
            sequences.delete(f"{name} fork")
            sequences.delete(name)
        else:
            sequences.append(name, self._some_keys(), expected_chunks=len(found.keys))

    def _fail(self, client: Client) -> None:
        """Calls that the daemon refuses."""
        layout = self._layout()
        outside = Placement(regions=(), base=1 << 40, layer_stride=4096)
        with contextlib.suppress(StoreError):
            client.read(layout, self._some_keys(), outside).close()
        client.delete([b"short"])
        client.sequences.append("unknown", self._some_keys(), expected_chunks=0)
        client.pin(layout, self._some_keys(), lease_ms=0)
        huge = StateLayout(
            model="huge", dtype="f", layers=(LayerState(StateKind.KV, 512 * 1024),) * 64
        )
        client.match(huge, self._some_keys())

    def _bad_handshake(self, client: Client) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(self._path))
            with contextlib.suppress(OSError):
                connection.sendall(self._source.randbytes(self._source.randrange(40)))
