"""SIGKILL of a client at its system calls and at random moments; the daemon lives on.

Everything that a client can hold shows from outside. A session is counted. An arena is a
memfd among the daemon's descriptors. A lease or pin keeps the extent of a chunk that
another client deletes, and a read, an unfinished put or an open tail keeps a frame or an
extent: so the bytes in use are those of the chunks, and no more, only when all of that was given
back.
"""

import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kvstored_client import Client, SequenceInfo, StoreError
from tests.faults.kill.conversations import ROWS, verify_found
from tests.faults.kill.doomed import DOOMED, FLUSHED_TOKENS, NAME_PREFIX, doomed_model
from tests.faults.kill.killable import KillableDaemon, cpu_wait_s
from tests.faults.kill.ledger import Ledger, ViolationError
from tests.faults.kill.load import delete, put
from tests.faults.kill.payload import KIB, MIB, fetch, payload_of
from tests.faults.kill.tracing import (
    ANY_THREAD,
    EVERY_CALL,
    MAIN_THREAD,
    KillPoint,
    killed_at,
    recorded,
)
from tests.support.template import ForkedProcess, Template
from tests.support.waiting import PATIENCE_S

EXTENT_BYTES = 20 * KIB
OTHER_SESSIONS = 2
"""The witness and the bystander."""
HELD = list(range(1, 17))
WATCHED = list(range(101, 109))
PUT_AT_A_TIME = 40
LIFE_S_MAX = 0.12
_POLL_S = 0.003


@dataclass(slots=True, kw_only=True)
class Outcome:
    """``cycles`` clients were run, ``kills`` of them killed before they were done."""

    cycles: int = 0
    kills: int = 0
    visible_chunks: int = 0
    visible_sequences: int = 0
    flushed_tails: int = 0
    bystander_reads: int = 0
    back_s_max: float = 0.0
    undisturbed_back_s_max: float = 0.0


class Death:
    """The moment at which a client has died, as the daemon and the one that looks will know it."""

    def __init__(self, daemon_pid: int) -> None:
        self._pids = (daemon_pid, os.getpid())
        self._died_at = time.monotonic()
        self._waited_s = self._cpu_wait_s()

    def ago_s(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self._died_at

    def undisturbed_ago_s(self) -> float:
        """The same without what both have waited for a CPU that others used."""
        return self.ago_s() - (self._cpu_wait_s() - self._waited_s)

    def _cpu_wait_s(self) -> float:
        return sum(map(cpu_wait_s, self._pids))


class Bystander:
    """Another client, which reads the same chunks all the time and must get them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.read_count = 0
        self.failure: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(_POLL_S) and self.failure is None:
                self._look()
        except StoreError as error:
            self.failure = repr(error)

    def _look(self) -> None:
        found = fetch(self._client, WATCHED)
        wrong = [number for number in WATCHED if found[number] != payload_of(number, 1)]
        if wrong:
            self.failure = f"another client did not get the chunks {wrong}"
        self.read_count += 1


class Ward:
    """The daemon, two clients that live, and one after the other that is killed."""

    def __init__(self, folder: Path, template: Template, engine: str) -> None:
        self.daemon = KillableDaemon(
            folder,
            template,
            slab_count=4,
            overrides={"store": {"slab_bytes": 4 * MIB}, "io": {"engine": engine}},
        )
        self._folder = folder
        self._template = template
        self._ledger = Ledger()
        self._next = 1001
        self.outcome = Outcome()

    def run(
        self, points: list[KillPoint | float], action: str, *, count: int | None = None
    ) -> Outcome:
        """One killed client for each point: a call, or a moment in seconds.

        With a ``count`` only until so many clients have run, and more than half as many were
        killed.
        """
        self.daemon.format()
        self.daemon.spawn()
        self.daemon.until_ready()
        with self.daemon.client() as witness, self.daemon.client() as other:
            put(witness, self._ledger, HELD)
            put(witness, self._ledger, WATCHED)
            # Chunks enter DRAM when they are put, and behind their second read.
            with Bystander(other) as bystander:
                for point in points:
                    # A run may happen not to come to a call that the recorded one has made.
                    if count is not None and self._are_enough(count):
                        break
                    try:
                        self._cycle(witness, point, action)
                    except ViolationError as error:
                        where = f"{action}, client killed at {point}"
                        raise ViolationError(
                            f"{where}: {error}\n{self.daemon.log[-4000:]}"
                        ) from error
                    if bystander.failure:
                        raise ViolationError(f"killed at {point}: {bystander.failure}")
            self.outcome.bystander_reads = bystander.read_count
        if self.daemon.terminate() != 0:
            raise ViolationError(f"the daemon did not stop in order:\n{self.daemon.log[-4000:]}")
        self.daemon.check()
        return self.outcome

    def _are_enough(self, count: int) -> bool:
        return self.outcome.cycles >= count and self.outcome.kills > count // 2

    def _cycle(self, witness: Client, point: KillPoint | float, action: str) -> None:
        numbers = list(range(self._next, self._next + PUT_AT_A_TIME))
        numbers = [number for number in numbers if number % 1000]
        self._next += PUT_AT_A_TIME
        for number in numbers:
            self._ledger.put_begins(number)
        status = self._kill_one(numbers, point, action)
        death = Death(self.daemon.pid)
        self.outcome.cycles += 1
        self.outcome.kills += status != 0
        self._see(witness, numbers)
        # It was leased: its extent is free only when the lease is.
        leased = [HELD[self.outcome.cycles % len(HELD)]]
        delete(witness, self._ledger, leased)
        self._until_all_is_back(witness, death)
        self._see_sequences(witness, death, is_done=status == 0)
        self.outcome.visible_chunks += self._see(witness, numbers)
        delete(witness, self._ledger, numbers)
        self._ledger.forget(numbers)
        put(witness, self._ledger, leased)

    def fork_client(self, numbers: list[int], action: str, *, repeats: bool) -> ForkedProcess:
        """A client that waits for ``release``."""
        return self._template.fork(
            DOOMED,
            self._folder / "client.log",
            socket=str(self.daemon.socket_path),
            go=self.daemon.hold(),
            numbers=numbers,
            held=HELD,
            action=action,
            repeats=repeats,
        )

    def _kill_one(self, numbers: list[int], point: KillPoint | float, action: str) -> int:
        client = self.fork_client(numbers, action, repeats=not isinstance(point, KillPoint))
        if isinstance(point, KillPoint):
            with killed_at(client.pid, point):
                self.daemon.release()
                return client.wait()
        self.daemon.release()
        time.sleep(point)
        client.kill()
        return client.wait()

    def _see(self, witness: Client, numbers: list[int]) -> int:
        """Judges what another client sees of the chunks; how many there are."""
        found = fetch(witness, numbers)
        for number, content in found.items():
            self._ledger.seen(number, content, settles=False)
        return sum(content is not None for content in found.values())

    def _see_sequences(self, witness: Client, death: Death, *, is_done: bool) -> None:
        """Judges what the dead client has left of its sequences, and deletes that."""
        for name in witness.sequences.list():
            model = doomed_model(int(name.removeprefix(NAME_PREFIX)))
            info = self._settled(witness, name, death)
            if is_done and info.durable_tokens != FLUSHED_TOKENS:
                raise ViolationError(f"a flush of {FLUSHED_TOKENS} tokens has left {info}")
            verify_found(witness, name, (model,), info)
            self.outcome.visible_sequences += 1
            self.outcome.flushed_tails += info.durable_tokens == FLUSHED_TOKENS
            witness.sequences.delete(name)
            flushed = model.tokens[:FLUSHED_TOKENS]
            witness.delete([*ROWS.keys(flushed), ROWS.tail_key(flushed)])

    def _settled(self, witness: Client, name: str, death: Death) -> SequenceInfo:
        """A sequence whose chunks are all recorded, and of whose open tail nothing is left."""
        while True:
            info = witness.sequences.get(name)
            assert info is not None
            if info.staged_tokens == info.durable_tokens:
                return info
            if death.ago_s() > PATIENCE_S:
                raise ViolationError(f"not settled: {info}")
            time.sleep(_POLL_S)

    def _until_all_is_back(self, witness: Client, death: Death) -> None:
        while held := self._still_held(witness):
            if death.ago_s() > PATIENCE_S:
                raise ViolationError(f"not back: {held}")
            time.sleep(_POLL_S)
        self.outcome.back_s_max = max(self.outcome.back_s_max, death.ago_s())
        self.outcome.undisturbed_back_s_max = max(
            self.outcome.undisturbed_back_s_max, death.undisturbed_ago_s()
        )

    def _still_held(self, witness: Client) -> dict[str, int]:
        """What somebody holds who should not, by kind."""
        stats = witness.admin.stats()
        surplus = Counter(
            sessions=stats.session_count - OTHER_SESSIONS,
            arenas=arena_count(self.daemon.pid) - OTHER_SESSIONS,
            extent_bytes=sum(device.used_bytes for device in stats.devices)
            - stats.chunk_count * EXTENT_BYTES,
            frame_bytes=stats.dram_used_bytes - stats.dram_chunk_count * EXTENT_BYTES,
        )
        return {kind: amount for kind, amount in surplus.items() if amount}


def arena_count(pid: int) -> int:
    """Arenas that a process has a descriptor of; a mapping keeps one of its own."""
    arenas = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "kvstored-arena" in str(link.readlink()):
                arenas.add(link.stat().st_ino)
        except OSError:
            # It was closed meanwhile.
            continue
    return len(arenas)


def points_of(folder: Path, template: Template, action: str, engine: str) -> list[KillPoint]:
    """Every system call that one client makes, by recording one."""
    ward = Ward(folder, template, engine)
    try:
        ward.daemon.format()
        ward.daemon.spawn()
        ward.daemon.until_ready()
        with ward.daemon.client() as client:
            put(client, Ledger(), HELD)
        client_process = ward.fork_client([2001, 2002, 2003, 2004], action, repeats=False)
        with recorded(client_process.pid, folder / "trace", EVERY_CALL) as counts:
            ward.daemon.release()
            client_process.wait()
    finally:
        ward.daemon.close()
    most: Counter[tuple[str, str]] = Counter()
    for kind, count in counts.items():
        thread = MAIN_THREAD if kind.thread == MAIN_THREAD else ANY_THREAD
        most[thread, kind.call] = max(most[thread, kind.call], count)
    return sorted(
        KillPoint(thread, call, when)
        for (thread, call), count in most.items()
        for when in range(1, count + 1)
    )


def moments(count: int, seed: int) -> list[KillPoint | float]:
    """Random moments in the life of a client."""
    dice = random.Random(seed)
    return [dice.random() * LIFE_S_MAX for _ in range(count)]
