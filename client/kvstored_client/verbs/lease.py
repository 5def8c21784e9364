"""Leases, for threads and for tasks."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from kvstored_client.verbs.store_verbs import LeaseGrant


class Lease:
    """Keeps ``chunk_count`` chunks from being evicted until it expires or is released.

    ``is_pinned`` tells of each key that was asked for whether its chunk is among them: which
    chunks of a history are stored, gaps included. Ends with its session too. Thread-safe.
    """

    __slots__ = ("_grant", "_release", "chunk_count", "is_pinned")

    def __init__(self, grant: LeaseGrant, release: Callable[[LeaseGrant], bool]) -> None:
        self.chunk_count = sum(grant.is_pinned)
        self.is_pinned = grant.is_pinned
        self._grant: LeaseGrant | None = grant
        self._release = release

    def release(self) -> bool:
        """Ends the lease; False when it had ended already. A second call does nothing."""
        grant, self._grant = self._grant, None
        return grant is not None and self._release(grant)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class AsyncLease:
    """As ``Lease``, for tasks of one event loop."""

    __slots__ = ("_grant", "_release", "chunk_count", "is_pinned")

    def __init__(self, grant: LeaseGrant, release: Callable[[LeaseGrant], Awaitable[bool]]) -> None:
        self.chunk_count = sum(grant.is_pinned)
        self.is_pinned = grant.is_pinned
        self._grant: LeaseGrant | None = grant
        self._release = release

    async def release(self) -> bool:
        """Ends the lease; False when it had ended already. A second call does nothing."""
        grant, self._grant = self._grant, None
        return grant is not None and await self._release(grant)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.release()
