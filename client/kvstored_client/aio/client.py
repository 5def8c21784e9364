"""The client for tasks of an event loop."""

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kvstored_client.aio.admin import AsyncAdmin
from kvstored_client.aio.read import AsyncRead
from kvstored_client.aio.sequences import AsyncSequences
from kvstored_client.aio.transport import AioSignal, AioTransport, uninterrupted
from kvstored_client.errors import StoreError
from kvstored_client.session.options import DEFAULT_ARENA_BYTES
from kvstored_client.session.region import Region
from kvstored_client.session.session import Session
from kvstored_client.values import (
    Ack,
    AppendItem,
    AppendReport,
    Changes,
    NewChunk,
    Order,
    PutReport,
)
from kvstored_client.verbs import append_verb, store_verbs
from kvstored_client.verbs.base import ClientBase, OnRefusal
from kvstored_client.verbs.call import ResultT, Verb
from kvstored_client.verbs.lease import AsyncLease
from kvstored_client.verbs.placement import Placement
from kvstored_client.verbs.progress import ReadProgress
from kvstored_client.verbs.store_verbs import LeaseGrant, Match
from kvstored_contract.layout import StateLayout


class LoopLink:
    """A session, its channel, and the way to wait for its reports."""

    __slots__ = ("session", "signal", "transport")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.transport = AioTransport(session)
        self.signal = AioSignal(session.presence)

    def retire(self) -> None:
        """The channel is freed with the last call that uses it; waiters see the end themselves."""


class AsyncClient(ClientBase[LoopLink]):
    """As ``Client``, with awaitable verbs. Belongs to one event loop.

    Cancelling a task in the middle of a put or of the start of a read takes effect when
    the daemon has let go of the arena, at the latest after the call's deadline.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        arena_bytes: int | str = DEFAULT_ARENA_BYTES,
        name: str = "",
        salt: str = "",
        strict: bool = False,
        reconnect_interval_s: float = 1.0,
        on_refusal: OnRefusal | None = None,
    ) -> None:
        super().__init__(
            socket,
            arena_bytes=arena_bytes,
            name=name,
            salt=salt,
            strict=strict,
            reconnect_interval_s=reconnect_interval_s,
            on_refusal=on_refusal,
        )
        self._attempt: asyncio.Task[LoopLink] | None = None
        """Connects on a thread, one for all tasks that wait for it."""
        self.sequences = AsyncSequences(self._run)
        self.admin = AsyncAdmin(self._run)

    async def available(self) -> bool:
        """Whether a session lives; connects at most every ``reconnect_interval_s``."""
        try:
            await self._ensure()
        except StoreError:
            return False
        return True

    async def prefix_keys(
        self, layout: StateLayout, token_ids: Sequence[int], *, parent: bytes = b""
    ) -> list[bytes]:
        """Keys (32 bytes) of all complete chunks of ``token_ids``, each chained to the last.

        ``parent`` is the key of the chunk before the first token; empty where there is none.

        Empty while no daemon was ever reached.
        """
        if self._connection.namespace is None:
            await self.available()
        return self._prefix_keys(layout, token_ids, parent)

    async def allocate(self, byte_count: int) -> Region | None:
        """A region of the arena, 4 KiB aligned; None when there is no room or no daemon."""
        return await self._run(store_verbs.allocate(byte_count))

    async def put(
        self,
        layout: StateLayout,
        chunks: Sequence[NewChunk],
        source: Placement,
        *,
        ack: Ack = Ack.STAGED,
        timeout_ms: int = 5000,
    ) -> PutReport:
        """Stores chunks from the arena; the source is the engine's again afterwards.

        What ``timeout_ms`` bounds says ``Client.put``.
        """
        verb = store_verbs.put(
            layout,
            chunks,
            source,
            ack=ack,
            timeout_ms=timeout_ms,
        )
        return await uninterrupted(self._run(verb))

    async def append(
        self,
        layout: StateLayout,
        snapshot: Region,
        row_count: int,
        items: Sequence[AppendItem],
        *,
        timeout_ms: int = 5000,
    ) -> AppendReport:
        """Adds the rows of one engine step to open sequences: one call for the whole batch.

        ``snapshot`` begins with the states of ``row_count`` rows, laid out as
        ``SnapshotGeometry(layout, row_count)`` says, and is the engine's again afterwards.
        Each item names a sequence (``sequences.create``) at most once. A chunk can be read
        when it is complete, and becomes durable after that. The daemon waits for no room:
        where it has none, the item's rows are dropped and its result says so. So they are when
        somebody else is changing the sequence for as long as ``timeout_ms``. (HCache, section
        4.2.2.)
        """
        verb = append_verb.append(layout, snapshot, row_count, items, timeout_ms=timeout_ms)
        return await uninterrupted(self._run(verb))

    async def register(self, layout: StateLayout) -> bool | None:
        """Whether the daemon takes chunks of this layout; None when it could not be asked."""
        return await self._run(store_verbs.register(layout))

    async def match(
        self, layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int = 0
    ) -> Match[AsyncLease]:
        """The longest stored prefix of ``keys``; above 0 ``lease_ms`` keeps it from eviction."""
        found = await self._run(store_verbs.match(layout, keys, lease_ms=lease_ms))
        return Match(found.chunk_count, self._lease(found.lease))

    async def read(
        self,
        layout: StateLayout,
        keys: Sequence[bytes],
        destination: Placement,
        *,
        order: Order = Order.TAIL_FIRST,
        first_layer: int = 0,
        layer_count: int | None = None,
        window_bytes: int = 0,
        timeout_ms: int = 30_000,
    ) -> AsyncRead:
        """Starts to read chunks into the arena; see ``Client.read``."""
        verb = store_verbs.read(
            layout,
            keys,
            destination,
            order=order,
            first_layer=first_layer,
            layer_count=layer_count,
            window_bytes=window_bytes,
            timeout_ms=timeout_ms,
        )

        async def start() -> AsyncRead:
            link, progress = await self._run_linked(verb)
            return self._read_of(link, progress)

        return await uninterrupted(start(), undo=AsyncRead.close)

    async def pin(
        self, layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int
    ) -> AsyncLease | None:
        """Keeps whichever of ``keys``, any number, are stored from eviction; None when none is."""
        return self._lease(await self._run(store_verbs.pin(layout, keys, lease_ms=lease_ms)))

    async def delete(self, keys: Sequence[bytes]) -> int:
        """Deletes chunks durably; how many there were."""
        return await self._run(store_verbs.delete(keys))

    async def changes(
        self, *, epoch: int = 0, after_sequence: int = 0, keys: Sequence[bytes] = ()
    ) -> Changes | None:
        """What came and went in the namespace after a place; see ``Client.changes``."""
        return await self._run(
            store_verbs.changes(epoch=epoch, after_sequence=after_sequence, keys=keys)
        )

    async def close(self) -> None:
        """Ends the session; every later call is a miss."""
        link = self._connection.current()
        self._connection.close()
        if link is not None:
            link.signal.close()
            await link.transport.close()

    def _make_link(self, session: Session) -> LoopLink:
        """How calls travel; a store in memory has a way of its own."""
        return LoopLink(session)

    def _read_of(self, link: LoopLink | None, progress: ReadProgress) -> AsyncRead:
        return AsyncRead(progress, None if link is None else link.signal)

    async def _ensure(self) -> LoopLink:
        link = self._connection.current()
        if link is not None:
            return link
        if not self._connection.due:
            return self._connection.ensure()
        if self._attempt is None:
            self._attempt = asyncio.create_task(asyncio.to_thread(self._connection.ensure))
            self._attempt.add_done_callback(self._attempted)
        # A task that is cancelled leaves the attempt to the others.
        return await asyncio.shield(self._attempt)

    def _attempted(self, attempt: asyncio.Task[LoopLink]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            # Seen, also where everybody who waited was cancelled.
            attempt.exception()

    async def _run(self, verb: Verb[ResultT], /) -> ResultT:
        return (await self._run_linked(verb))[1]

    async def _run_linked(self, verb: Verb[ResultT]) -> tuple[LoopLink | None, ResultT]:
        link = None
        try:
            link = await self._ensure()
            return link, await link.transport.drive(verb.flow(link.session))
        except StoreError as error:
            return link, self._missed(verb, error)

    def _lease(self, grant: LeaseGrant | None) -> AsyncLease | None:
        return None if grant is None else AsyncLease(grant, self._unpin)

    async def _unpin(self, grant: LeaseGrant) -> bool:
        return await self._run(store_verbs.unpin(grant))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
