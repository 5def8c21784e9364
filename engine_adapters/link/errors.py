"""What can go wrong with entries. Pure."""


class LinkError(Exception):
    """Entries cannot be linked, or not be kept."""


class ExpiredError(LinkError):
    """There is no entry of ``entry_id`` any more, or there never was."""

    def __init__(self, entry_id: str) -> None:
        super().__init__(
            f"there is no context cache {entry_id!r}: it has expired or was never made; make it "
            "with generate_context_cache"
        )
        self.entry_id = entry_id


class LostEntryError(LinkError):
    """The store has lost the token ids of ``entry_id``, which nothing can compute."""

    def __init__(self, entry_id: str) -> None:
        super().__init__(
            f"the store has lost the token ids of context cache {entry_id!r}; make it with "
            "generate_context_cache from the same tokens once more, which keeps its id"
        )
        self.entry_id = entry_id


class QuotaError(LinkError):
    """A namespace would have more entries, or tokens in them, than it may.

    ``limit_name`` is ``entries_max`` or ``tokens_max``, and ``limit`` is how many that allows.
    """

    def __init__(self, limit_name: str, limit: int, count: int) -> None:
        what = "entries" if limit_name == "entries_max" else "tokens in entries"
        super().__init__(
            f"the namespace would have {count} {what}, and {limit_name} allows {limit}; end some "
            "that nobody needs, or give them a time to live"
        )
        self.limit_name = limit_name
        self.limit = limit
