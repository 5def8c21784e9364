"""Limits of the client itself; those that both sides know are in ``kvstored_contract.limits``."""

CONNECT_TIMEOUT_S = 10.0
"""How long one attempt to reach the daemon may take, beside the making of the arena."""

ARENA_BYTES_PER_S_LEAST = 256 * 1024 * 1024
"""Every page of an arena is made before the session is granted, by no daemon slower than this."""

CALL_TIMEOUT_S = 10.0
"""How long a call that names no deadline of its own may take; the daemon answers it sooner
(``CALL_DEADLINE_MS``)."""

REPLY_GRACE_S = 10.0
"""What a call may take beyond its own deadline before the daemon counts as hung."""

LOOK_INTERVAL_S = 0.02
"""A waiter looks at its board so often even if nobody wakes it: the daemon reports progress
at intervals, and a device may stall after the last report."""


def welcome_timeout_s(arena_bytes: int) -> float:
    """How long the daemon may take to grant a session with an arena of ``arena_bytes``, seconds."""
    return CONNECT_TIMEOUT_S + arena_bytes / ARENA_BYTES_PER_S_LEAST
