"""The client for threads."""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kvstored_client.errors import StoreError
from kvstored_client.session.options import DEFAULT_ARENA_BYTES
from kvstored_client.session.region import Region
from kvstored_client.session.session import Session
from kvstored_client.threads.admin import Admin
from kvstored_client.threads.read import Read
from kvstored_client.threads.sequences import Sequences
from kvstored_client.threads.transport import Signal, Transport
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
from kvstored_client.verbs.lease import Lease
from kvstored_client.verbs.placement import Placement
from kvstored_client.verbs.progress import ReadProgress
from kvstored_client.verbs.store_verbs import LeaseGrant, Match
from kvstored_contract.layout import StateLayout


class ThreadLink:
    """A session, its channel, and the way to wait for its reports."""

    __slots__ = ("session", "signal", "transport")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.transport = Transport(session)
        self.signal = Signal(session.presence)

    def retire(self) -> None:
        """Frees the channel of a session that has ended."""
        self.transport.close()


class Client(ClientBase[ThreadLink]):
    """Stores and fetches attention state through the daemon of this node.

    Connects when it is first used and again after a restart of the daemon. A failure is
    a miss: match finds 0 chunks, every slice of a read is MISSING, a put rejects all its
    chunks, other verbs answer None, 0 or False; it is counted in ``counters`` and the
    first of each kind is logged. With ``strict`` every failure raises a StoreError.

    Every method may be called from any thread. A forked child finds its parent's client
    closed and makes one of its own, before which gRPC must not have been in use.

    ``socket``: the daemon's session socket; default KVSTORED_SOCKET, else
    /run/kvstored/kvstored.sock. ``arena_bytes``: memory shared with the daemon, an int or
    a size like "2GiB". ``name``: for the daemon's logs. ``salt``: narrows the namespace;
    clients with different salts share nothing. ``reconnect_interval_s``: how long an
    absent daemon is left alone. ``on_refusal``: is given each new reason why the daemon refuses a
    session, instead of the log, on the thread that connects; it must not raise, nor use the
    client. Raises OptionError for an option that makes no sense.
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
        self.sequences = Sequences(self._run)
        self.admin = Admin(self._run)

    def available(self) -> bool:
        """Whether a session lives; connects at most every ``reconnect_interval_s``."""
        try:
            self._connection.ensure()
        except StoreError:
            return False
        return True

    def prefix_keys(
        self, layout: StateLayout, token_ids: Sequence[int], *, parent: bytes = b""
    ) -> list[bytes]:
        """Keys (32 bytes) of all complete chunks of ``token_ids``, each chained to the last.

        ``parent`` is the key of the chunk before the first token; empty where there is none.

        Empty while no daemon was ever reached, since it is the daemon that names the
        namespace; a strict client raises DaemonAbsentError.
        """
        if self._connection.namespace is None:
            self.available()
        return self._prefix_keys(layout, token_ids, parent)

    def allocate(self, byte_count: int, *, connects: bool = True) -> Region | None:
        """A region of the arena, 4 KiB aligned; None when there is no room or no daemon.

        Its bytes are whatever was there before. Strict: raises ArenaFullError. Without
        ``connects`` it never waits: a client that has no session has no arena then, until
        ``available`` or another call has connected it.
        """
        return self._run_linked(store_verbs.allocate(byte_count), connects=connects)[1]

    def put(
        self,
        layout: StateLayout,
        chunks: Sequence[NewChunk],
        source: Placement,
        *,
        ack: Ack = Ack.STAGED,
        timeout_ms: int = 5000,
    ) -> PutReport:
        """Stores chunks from the arena; the source is the engine's again on return.

        ``timeout_ms`` bounds the wait for room in the daemon's memory and, with
        ``Ack.DURABLE``, for the devices: a chunk that they did not take in time is STAGED, with
        the reason DEADLINE. A put that ends without the daemon's answer ends the session.
        """
        return self._run(
            store_verbs.put(
                layout,
                chunks,
                source,
                ack=ack,
                timeout_ms=timeout_ms,
            )
        )

    def append(
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
        ``SnapshotGeometry(layout, row_count)`` says, and is the engine's again on return.
        Each item names a sequence (``sequences.create``) at most once. A chunk can be read
        when it is complete, and becomes durable after that. The daemon waits for no room:
        where it has none, the item's rows are dropped and its result says so. So they are when
        somebody else is changing the sequence for as long as ``timeout_ms``. (HCache, section
        4.2.2.)
        """
        return self._run(
            append_verb.append(layout, snapshot, row_count, items, timeout_ms=timeout_ms)
        )

    def register(self, layout: StateLayout) -> bool | None:
        """Whether the daemon takes chunks of this layout; None when it could not be asked.

        Other calls announce their layout by themselves. A daemon refuses chunks that are larger
        than what its slabs hold and, with a codec, slices that are larger than its
        ``io.read_bytes_max``: all that is done with such a layout is a miss. It is asked once
        for each session.
        """
        return self._run(store_verbs.register(layout))

    def match(
        self, layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int = 0
    ) -> Match[Lease]:
        """The longest stored prefix of ``keys``; above 0 ``lease_ms`` keeps it from eviction."""
        found = self._run(store_verbs.match(layout, keys, lease_ms=lease_ms))
        return Match(found.chunk_count, self._lease(found.lease))

    def read(
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
    ) -> Read:
        """Starts to read chunks into the arena and returns at once.

        ``layer_count`` layers from ``first_layer`` on (default: to the last). At most
        ``window_bytes`` are in flight (0: the daemon's choice). What is not resident after
        ``timeout_ms`` is LATE.
        """
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
        link, progress = self._run_linked(verb)
        return self._read_of(link, progress)

    def pin(self, layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int) -> Lease | None:
        """Keeps whichever of ``keys``, any number, are stored from eviction; None when none is."""
        return self._lease(self._run(store_verbs.pin(layout, keys, lease_ms=lease_ms)))

    def delete(self, keys: Sequence[bytes]) -> int:
        """Deletes chunks durably; how many there were."""
        return self._run(store_verbs.delete(keys))

    def changes(
        self, *, epoch: int = 0, after_sequence: int = 0, keys: Sequence[bytes] = ()
    ) -> Changes | None:
        """What came and went in the namespace after a place; None when nobody answered.

        The place is ``epoch`` and ``last_sequence`` of the answer before, at first 0 and 0. Of
        each of ``keys`` the answer tells whether its chunk is stored. Answers at once, with
        at most 2048 changes. The daemon remembers them from the first such call of the
        namespace on, the last 32,768 or 16 MiB of notes of them.
        """
        return self._run(store_verbs.changes(epoch=epoch, after_sequence=after_sequence, keys=keys))

    def close(self) -> None:
        """Ends the session; every later call is a miss."""
        self._connection.close()

    def _make_link(self, session: Session) -> ThreadLink:
        """How calls travel; a store in memory has a way of its own."""
        return ThreadLink(session)

    def _read_of(self, link: ThreadLink | None, progress: ReadProgress) -> Read:
        return Read(progress, None if link is None else link.signal)

    def _run(self, verb: Verb[ResultT], /) -> ResultT:
        return self._run_linked(verb)[1]

    def _run_linked(
        self, verb: Verb[ResultT], *, connects: bool = True
    ) -> tuple[ThreadLink | None, ResultT]:
        link = None
        try:
            link = self._connection.ensure() if connects else self._connection.live()
            return link, link.transport.drive(verb.flow(link.session))
        except StoreError as error:
            return link, self._missed(verb, error)

    def _lease(self, grant: LeaseGrant | None) -> Lease | None:
        return None if grant is None else Lease(grant, self._unpin)

    def _unpin(self, grant: LeaseGrant) -> bool:
        return self._run(store_verbs.unpin(grant))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
