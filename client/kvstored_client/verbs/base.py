"""What the sync and the asyncio client have in common: options, counters, the connection."""

import logging
import os
import struct
from collections.abc import Callable, Sequence
from typing import Generic

from kvstored_client.errors import (
    DaemonAbsentError,
    RequestInvalidError,
    SessionRefusedError,
    StoreError,
)
from kvstored_client.session.arena import boards_bytes
from kvstored_client.session.connection import Connection, LinkT
from kvstored_client.session.counters import Counters
from kvstored_client.session.options import (
    DEFAULT_ARENA_BYTES,
    Options,
    parse_bytes,
    resolve_socket,
    whole_pages,
)
from kvstored_client.session.session import Session, open_session
from kvstored_client.verbs.call import ResultT, Verb
from kvstored_contract import keys as contract_keys
from kvstored_contract.layout import StateLayout, align_up

LOGGER = logging.getLogger("kvstored_client")

OnRefusal = Callable[[SessionRefusedError], None]


def _log_refusal(refusal: SessionRefusedError) -> None:
    LOGGER.warning("the daemon refuses a session, so every call is a miss: %s", refusal)


class ClientBase(Generic[LinkT]):
    """Options, counters and the connection. Nothing here blocks."""

    def __init__(
        self,
        socket: str | os.PathLike[str] | None,
        *,
        arena_bytes: int | str = DEFAULT_ARENA_BYTES,
        name: str = "",
        salt: str = "",
        strict: bool = False,
        reconnect_interval_s: float = 1.0,
        on_refusal: OnRefusal | None = None,
    ) -> None:
        self._options = Options(
            socket=resolve_socket(socket),
            arena_bytes=whole_pages(parse_bytes(arena_bytes)),
            name=name,
            salt=salt,
            strict=strict,
            reconnect_interval_s=reconnect_interval_s,
        )
        self._counters = Counters()
        self._connection = Connection(
            self._options,
            self._make_link,
            self._counters,
            opener=self._open_session,
            tell=_log_refusal if on_refusal is None else on_refusal,
        )

    @property
    def counters(self) -> dict[str, int]:
        """How often what happened.

        ``connects``, ``connect_failures`` and, of these, ``connect_refused_<reason>`` where a
        daemon refused the session; for each verb that failed ``<verb>_failed`` and
        ``<verb>_failed_<kind of error>``.
        """
        return self._counters.counts()

    @property
    def refusal(self) -> str:
        """Why the daemon refuses this client a session, in its own sentence; else empty.

        Empty as well when no daemon answers, and after ``close``. As of the last attempt: does
        not connect.
        """
        return self._connection.refusal

    @property
    def epoch(self) -> int:
        """The daemon's epoch; 0 while no session lives. Does not connect."""
        link = self._connection.current()
        return 0 if link is None else link.session.epoch

    @property
    def namespace(self) -> str:
        """The namespace of this client's keys: the server's, or ``<server's>/<salt>``.

        Empty until a daemon was reached. Does not connect.
        """
        return self._connection.namespace or ""

    @property
    def region_bytes_max(self) -> int:
        """Bytes that all regions of the arena can have together. Does not connect."""
        arena_bytes = self._options.arena_bytes
        return arena_bytes - align_up(boards_bytes(arena_bytes))

    @property
    def arena_memory(self) -> memoryview | None:
        """All memory shared with the daemon; None while no session lives. Does not connect.

        For what has to be said of it to a device once, as that it is to be pinned: every session
        has memory of its own. What is read or written takes regions.
        """
        link = self._connection.current()
        return None if link is None else link.session.arena.memory

    def _open_session(self, options: Options) -> Session:
        """A session with the daemon."""
        return open_session(options)

    def _make_link(self, session: Session) -> LinkT:
        """What goes with a session: its channel, and the way to wait for its reports."""
        raise NotImplementedError

    def _missed(self, verb: Verb[ResultT], error: StoreError) -> ResultT:
        """The result that stands for a failure, unless that is to be raised."""
        self._note(verb.name, error, is_raised=self._options.strict or verb.always_raise)
        return verb.missed(error)

    def _prefix_keys(
        self, layout: StateLayout, token_ids: Sequence[int], parent: bytes
    ) -> list[bytes]:
        try:
            return self._derive_keys(layout, token_ids, parent)
        except StoreError as error:
            self._note("prefix_keys", error, is_raised=self._options.strict)
            return []

    def _derive_keys(
        self, layout: StateLayout, token_ids: Sequence[int], parent: bytes
    ) -> list[bytes]:
        namespace = self._connection.namespace
        if namespace is None:
            raise DaemonAbsentError(f"no daemon at {self._options.socket} named a namespace yet")
        try:
            return contract_keys.prefix_keys(
                namespace=namespace, layout=layout, token_ids=token_ids, parent=parent
            )
        except (OverflowError, TypeError, struct.error) as error:
            raise RequestInvalidError(
                f"token ids are integers from 0 to 2**32 - 1: {error}"
            ) from error

    def _note(self, verb: str, error: StoreError, *, is_raised: bool) -> None:
        """Counts a failure, then raises or logs it: the first of each kind as a warning."""
        count = self._counters.add_failure(verb, error)
        if is_raised:
            raise error
        # The connection has logged a refused session.
        is_news = count == 1 and str(error) != self.refusal
        level = logging.WARNING if is_news else logging.DEBUG
        LOGGER.log(level, "%s failed and counts as a miss: %s", verb, error)
