"""Asks the store for prefixes, away from the scheduler's thread."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from engine_adapters.layout_check import LayoutCheck
from engine_adapters.vllm.chunk_keys import KeyChain, RequestIdentity, rank_key
from kvstored_client import Client, Lease, StateLayout

LOGGER = logging.getLogger("vllm.kvstored")
THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The longest prefix that all ranks have stored.

    ``chain`` is None when there is no daemon that takes the layouts. ``leases`` keep the chunks
    from being evicted.
    """

    chain: KeyChain | None = None
    chunk_count: int = 0
    leases: tuple[Lease, ...] = ()


class PendingLookup:
    """One question on its way. Thread-safe."""

    __slots__ = ("_deadline_s", "_future")

    def __init__(self, future: Future[Found], deadline_s: float) -> None:
        self._future = future
        self._deadline_s = deadline_s

    def result(self, wait_s: float) -> Found | None:
        """The answer; None while there may still be one. Nothing found behind the deadline."""
        try:
            return self._future.result(timeout=wait_s)
        except TimeoutError:
            if time.monotonic() < self._deadline_s:
                return None
            return Found()

    def when_found(self, use: Callable[[Found], None]) -> None:
        """Has ``use`` get the answer, in whatever thread it comes; at once where it has come."""

        def pass_on(future: Future[Found]) -> None:
            if not future.cancelled():
                use(future.result())

        self._future.add_done_callback(pass_on)


class Lookup:
    """Answers in the order of the questions, by threads of its own. Thread-safe.

    ``layouts`` are those of all ranks; a chunk counts as stored when each of them has it.
    """

    def __init__(
        self,
        client: Client,
        layouts: Sequence[StateLayout],
        *,
        fingerprint: str,
        timeout_s: float,
        lease_ms: int,
    ) -> None:
        self._client = client
        self.layouts = tuple(layouts)
        self._fingerprint = fingerprint
        self._timeout_s = timeout_s
        self._lease_ms = lease_ms
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kvstored-lookup")
        self._is_closed = threading.Event()
        self._check = LayoutCheck(client, self.layouts, LOGGER)
        # By the time that the model is loaded the daemon has said whether it takes them.
        self._threads.submit(self._takes_layouts)

    def ask(
        self, identity: RequestIdentity, token_ids: Sequence[int], *, chain: KeyChain | None = None
    ) -> PendingLookup:
        """Asks for the longest stored prefix of ``token_ids``; returns at once."""
        future = self._threads.submit(self._find, identity, token_ids, chain)
        return PendingLookup(future, time.monotonic() + self._timeout_s)

    def release(self, found: Found) -> None:
        """Ends the leases of an answer; returns at once."""
        if found.leases and not self._is_closed.is_set():
            self._threads.submit(_release, found.leases)

    def drop(self, pending: PendingLookup) -> None:
        """Nobody waits for an answer any more: its leases end when it comes; returns at once."""
        pending.when_found(self.release)

    @property
    def is_connected(self) -> bool:
        """Whether a session with the daemon lives, connecting when that is due."""
        return self._client.available()

    def close(self) -> None:
        """Leaves questions without an answer; ends the session, and with it all leases."""
        self._is_closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _find(
        self, identity: RequestIdentity, token_ids: Sequence[int], chain: KeyChain | None
    ) -> Found:
        try:
            if self._check.is_refused():
                return Found()
            if chain is None:
                if not self._takes_layouts():
                    return Found()
                chain = KeyChain(
                    namespace=self._client.namespace,
                    fingerprint=self._fingerprint,
                    identity=identity,
                    chunk_tokens=self.layouts[0].chunk_tokens,
                )
            return self._match(chain, chain.extend(token_ids))
        except Exception:
            # Whatever it is, it is a miss: nothing may reach the scheduler from here.
            LOGGER.exception("kvstored: a look-up failed and counts as a miss")
            return Found(chain=chain)

    def _takes_layouts(self) -> bool:
        return self._client.available() and not self._check.is_refused()

    def _match(self, chain: KeyChain, chain_keys: Sequence[bytes]) -> Found:
        chunk_count = len(chain_keys)
        leases: list[Lease] = []
        for layout in self.layouts:
            if chunk_count == 0:
                break
            keys = [rank_key(key, layout.layout_id) for key in chain_keys[:chunk_count]]
            match = self._client.match(layout, keys, lease_ms=self._lease_ms)
            chunk_count = match.chunk_count
            if match.lease is not None:
                leases.append(match.lease)
        return Found(chain=chain, chunk_count=chunk_count, leases=tuple(leases))


def _release(leases: Sequence[Lease]) -> None:
    for lease in leases:
        lease.release()
