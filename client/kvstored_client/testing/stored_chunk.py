"""What a store in memory keeps of a chunk."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """The bytes of a chunk: one slice for each layer of its layout, empty for layers of NONE.

    ``note`` is what was put with it, for those who follow changes.
    """

    layout_id: bytes
    slices: tuple[bytes, ...]
    token_count: int
    parent_key: bytes = b""
    note: bytes = b""
