"""Which verbs are served over TCP: those that need no memory shared with the daemon. Pure."""

_PACKAGE = "kvstored.v1"
SERVED = frozenset(
    f"{_PACKAGE}.{service}/{verb}"
    for service, verbs in {
        "SessionService": ("RegisterLayout", "Ping"),
        "StoreService": ("Match", "Pin", "Unpin", "Delete", "Changes"),
        "SequenceService": (
            "Create",
            "Get",
            "AppendChunks",
            "Fork",
            "TruncateFront",
            "TruncateBack",
            "Flush",
            "Delete",
            "List",
            "Hint",
        ),
    }.items()
    for verb in verbs
)
"""By name, so that a new verb is refused until somebody has thought about it."""


def sentence_of(name: str) -> str:
    """Why a verb is not served over TCP, and what to do."""
    return (
        f"{name.rpartition('/')[2]} is not served over TCP: bytes go through shared memory, "
        "and operators use the daemon's own machine; call it there, over server.socket"
    )
