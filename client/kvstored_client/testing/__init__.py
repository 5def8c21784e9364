"""A store in memory for tests of code that uses the SDK.

    client = MemoryClient(MemoryStore(), strict=True)

is a ``Client`` whose every verb works, without a daemon. ``MemoryStore.faults`` sets delays,
refusals and losses, ``MemoryStore.kill`` and ``start`` play a daemon that dies and comes back,
``MemoryStore.asked`` tells what clients asked for. What it serves is what was put, or a miss.

In reading order: the store (``store``), what it keeps of a chunk (``stored_chunk``), of a sequence
(``memory_sequence``, with the rows at its end in ``tail``) and of changes (``memory_changes``), and
what a test sets (``faults``). Clients in the same process (``memory_client``) reach it by
``memory_link``, those of other processes by ``memory_daemon``; each has a session
(``memory_session``). Every method is served by a function (``calls``): of sessions and the daemon
(``admin_calls``), of chunks (``store_calls``), of sequences (``sequence_calls``), of queues
(``hint_call``). What is refused
(``checks``, ``refusal``), where slices lie (``addresses``), and how a read arrives
(``served_read``, in the same process ``memory_read``).
"""

from kvstored_client.testing.faults import CallName, Faults
from kvstored_client.testing.memory_client import AsyncMemoryClient, MemoryClient
from kvstored_client.testing.memory_daemon import MemoryDaemon
from kvstored_client.testing.served_read import Delivery, ServedRead, Wait
from kvstored_client.testing.store import MemoryStore
from kvstored_client.testing.stored_chunk import StoredChunk

__all__ = [
    "AsyncMemoryClient",
    "CallName",
    "Delivery",
    "Faults",
    "MemoryClient",
    "MemoryDaemon",
    "MemoryStore",
    "ServedRead",
    "StoredChunk",
    "Wait",
]
