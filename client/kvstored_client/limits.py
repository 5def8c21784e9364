"""Limits of the client itself; those that both sides know are in ``kvstored_contract.limits``."""

CONNECT_TIMEOUT_S = 10.0
"""How long one attempt to reach the daemon may take, the making of the arena included."""

CALL_TIMEOUT_S = 10.0
"""How long a call that names no deadline of its own may take."""

REPLY_GRACE_S = 10.0
"""What a put or a read may take beyond its own deadline before the daemon counts as hung."""

LOOK_INTERVAL_S = 0.02
"""A waiter looks at its board so often even if nobody wakes it: the daemon reports progress
at intervals, and a device may stall behind the last report."""
