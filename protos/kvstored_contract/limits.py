"""Every limit that both sides know, in one place. Pure."""

PROTOCOL_VERSION = 2
"""Version of the session handshake and of the board; must be equal on both sides."""

KEY_BYTES = 32
"""Length of chunk keys and of layout ids (SHA-256)."""

ALIGNMENT_BYTES = 4096
"""Alignment of slices on devices, and of arena offsets that are read into without a copy."""

HUGE_PAGE_BYTES = 2 * 1024 * 1024
"""Size of a huge page; arenas of whole ones can lie on them."""

LAYERS_MAX = 256
"""Layers of one layout; bounded by what fits into the 4 KiB extent header."""

CHUNK_TOKENS_MAX = 4096
"""Tokens of one chunk."""

LAYOUT_TEXT_BYTES_MAX = 512
"""Length of a layout's model fingerprint and of its dtype in UTF-8."""

CODEC_NAME_BYTES_MAX = 32
"""Length of the name of a layout's codec."""

TOKEN_BYTES_MAX = 512 * 1024
"""Bytes of one token in one layer; a slice then stays below 4 GiB."""

SHARDS_MAX = 65_536
"""Ranks and layers that a shard can name."""

CHUNKS_PER_CALL_MAX = 16_384
"""Chunk keys in one call."""

ITEMS_PER_APPEND_MAX = 4096
"""Sequences that one append may name."""

ROWS_PER_APPEND_MAX = 65_536
"""Rows of one snapshot."""

SNAPSHOT_ALIGNMENT_BYTES = 64
"""Alignment of the blocks of a snapshot: a line of the CPU's cache."""

BLOCKS_PER_CALL_MAX = 262_144
"""Block offsets in one placement."""

SLICE_LENGTHS_PER_CALL_MAX = 262_144
"""Lengths of encoded slices in one put: chunks times layers."""

NOTE_BYTES_MAX = 32 * 1024
"""Length of the note that may come with a chunk."""

NOTES_BYTES_PER_CALL_MAX = 2 * 1024 * 1024
"""Bytes of all notes in one put."""

FRAGMENT_BYTES_MIN = 64
"""Length of the fragments that blocks cut a slice into: each costs a copy of its own."""

SEQUENCE_NAME_BYTES_MAX = 200
"""Length of a sequence name in UTF-8."""

WAITING_PER_SESSION_MAX = 4096
"""Names that wait in the queue of one session, and that one hint may name."""

HINTED_CHUNKS_PER_SESSION_MAX = 262_144
"""Chunks of these."""

PLACE_MAX = 2**48
"""The last place of a queue."""

LEASE_MS_MAX = 600_000
"""Longest lease."""

DEADLINE_MS_MAX = 600_000
"""Longest deadline of a call."""

CALL_DEADLINE_MS = 8000
"""The deadline of a call that names none; clients wait a little longer for its answer."""

CLIENT_NAME_BYTES_MAX = 100
"""Length of the name that a client gives itself."""

GRPC_MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""Largest gRPC message; payload never travels in one."""

LIST_CHUNKS_MAX = 10_000
"""Chunks in one answer of ``AdminService.ListChunks``."""
