"""Asks the store for prefixes, away from the scheduler's thread."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from engine_adapters.breaker import SLOW_LOOKUP_S, Breaker
from engine_adapters.layout_check import LayoutCheck
from engine_adapters.started_pool import started_pool
from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity, rank_key
from engine_adapters.vllm.messages.refusal import WorkerRefusals
from engine_adapters.vllm.scheduler_side.disconnections import Disconnections
from engine_adapters.vllm.scheduler_side.found import Found, Held, Question
from kvstored_client import Client, Lease, StateLayout
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX

LOGGER = logging.getLogger("vllm.kvstored")
THREADS = 2


class PendingLookup:
    """One question on its way. Thread-safe."""

    __slots__ = ("_clock", "_deadline_s", "_future")

    def __init__(
        self,
        future: Future[Found],
        deadline_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._future = future
        self._deadline_s = deadline_s
        self._clock = clock

    def result(self, wait_s: float) -> Found | None:
        """The answer; None while there may still be one. Nothing found after the deadline."""
        # Of many that are looked at in a step, most have no time to wait: a look has to be cheap.
        if wait_s > 0.0 or self._future.done():
            try:
                return self._future.result(timeout=wait_s)
            except TimeoutError:
                pass
        return None if self._clock() < self._deadline_s else Found()

    def cancel(self) -> bool:
        """Has the question not asked any more; False when that has begun, or is over."""
        return self._future.cancel()

    def when_found(self, use: Callable[[Found], None]) -> None:
        """Has ``use`` get the answer, in whatever thread it comes; at once where it has come."""

        def pass_on(future: Future[Found]) -> None:
            if not future.cancelled():
                use(future.result())

        self._future.add_done_callback(pass_on)


class Lookup:
    """Answers in the order of the questions, by threads of its own. Thread-safe.

    ``layouts`` are those of all ranks; a chunk counts as stored when each of them has it. While
    the daemon hangs (``Breaker``) it asks nothing and finds nothing.
    """

    def __init__(
        self,
        client: Client,
        layouts: Sequence[StateLayout],
        *,
        fingerprint: str,
        timeout_s: float,
        lease_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self.layouts = tuple(layouts)
        self._fingerprint = fingerprint
        self._timeout_s = timeout_s
        self._lease_ms = lease_ms
        # Later the engine itself would hear that there is no thread.
        self._threads = started_pool(THREADS, "kvstored-lookup")
        self._clock = clock
        self._breaker = Breaker(slow_s=max(SLOW_LOOKUP_S, timeout_s), clock=clock)
        self._is_closed = threading.Event()
        self._disconnections = Disconnections(client)
        self._check = LayoutCheck(client, self.layouts, LOGGER)
        self._refusals = WorkerRefusals()
        # By the time that the model is loaded the daemon has said whether it takes them.
        self._threads.submit(self._takes_layouts)

    def ask(
        self, identity: RequestIdentity, token_ids: Sequence[int], *, chain: KeyChain | None = None
    ) -> PendingLookup:
        """Asks for the longest stored prefix of ``token_ids``; returns at once."""
        deadline_s = self._clock() + self._timeout_s
        if not self._breaker.admits():
            answered: Future[Found] = Future()
            answered.set_result(Found(chain=chain))
            return PendingLookup(answered, deadline_s, clock=self._clock)
        future = self._threads.submit(self._find, identity, token_ids, chain, deadline_s)
        return PendingLookup(future, deadline_s, clock=self._clock)

    def release(self, found: Found) -> None:
        """Ends the leases of an answer; returns at once.

        While the daemon hangs they end with their time: the first request after that should not
        wait for it.
        """
        if found.leases and self._breaker.is_closed and not self._is_closed.is_set():
            self._threads.submit(self._release, found.leases)

    def drop(self, pending: Question) -> None:
        """Nobody waits for an answer any more; returns at once.

        It is not asked for, if it was not yet; else its leases end when it comes.
        """
        if not pending.cancel():
            pending.when_found(self.release)

    @property
    def is_connected(self) -> bool:
        """Whether a session with the daemon lives, connecting when that is due."""
        return self._client.available()

    def take_disconnections(self) -> dict[str, int]:
        """Why there was no session since the last call, by counter; belongs to one thread."""
        return self._disconnections.take()

    def hear_refusals(self, refusals: Mapping[int, str]) -> None:
        """Takes the daemon's words to workers, by rank: while it refuses one nothing is found.

        Keys are known all the same: what is computed is offered to the workers, and one that gets
        a session meanwhile says so.
        """
        self._refusals.hear(refusals)

    def close(self) -> None:
        """Leaves questions without an answer; ends the session, and with it all leases."""
        self._is_closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _find(
        self,
        identity: RequestIdentity,
        token_ids: Sequence[int],
        chain: KeyChain | None,
        deadline_s: float,
    ) -> Found:
        try:
            if self._clock() >= deadline_s:
                # Others came first, and took all its time.
                return Found(chain=chain)
            with self._breaker.watch():
                is_refused = self._check.is_refused()
                is_served = chain is not None or self._takes_layouts()
            if is_refused or not is_served:
                return Found()
            if chain is None:
                chain = KeyChain(
                    namespace=self._client.namespace,
                    fingerprint=self._fingerprint,
                    identity=identity,
                    chunk_tokens=self.layouts[0].chunk_tokens,
                )
            chain_keys = chain.extend(token_ids)
            if self._refusals.are_any:
                return Found(chain=chain)
            return self._match(chain, chain_keys)
        except Exception:
            # Whatever it is, it is a miss: nothing may reach the scheduler from here.
            LOGGER.exception("kvstored: a look-up failed and counts as a miss")
            return Found(chain=chain)

    def _takes_layouts(self) -> bool:
        return self._client.available() and not self._check.is_refused()

    def _match(self, chain: KeyChain, chain_keys: Sequence[bytes]) -> Found:
        # A prefix is worth its tokens, however long the rest of the prompt is.
        chunk_count = min(len(chain_keys), CHUNKS_PER_CALL_MAX)
        leases: list[Lease] = []
        for layout in self.layouts:
            if chunk_count == 0:
                break
            keys = [rank_key(key, layout.layout_id) for key in chain_keys[:chunk_count]]
            with self._breaker.watch():
                match = self._client.match(layout, keys, lease_ms=self._lease_ms)
            chunk_count = match.chunk_count
            if match.lease is not None:
                leases.append(match.lease)
        return Found(chain=chain, chunk_count=chunk_count, leases=tuple(leases))

    def _release(self, leases: Sequence[Held]) -> None:
        for lease in leases:
            if not self._breaker.is_closed:
                # It has come to hang since.
                return
            # Look-ups wait for these threads, so a daemon that hangs shows here as well.
            with self._breaker.watch():
                lease.release()
