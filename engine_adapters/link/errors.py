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
