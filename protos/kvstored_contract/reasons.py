"""Why a call, or one chunk of it, was not served: the closed enum of ``common.proto``. Pure."""

from enum import IntEnum

REASON_METADATA = "kvstored-reason"
"""Trailing metadata entry that carries a reason's name beside a gRPC error status."""

TOKEN_METADATA = "kvstored-token"  # noqa: S105 - the name of a header, not a secret
"""Metadata entry of every call: the token of the caller's session."""

REFUSED = "connect_refused_"
"""What names of counters of refused sessions begin with; the reason's name follows."""


class Reason(IntEnum):
    """Values are those of the protobuf enum; its comments say what each means."""

    UNSPECIFIED = 0
    TOKEN_UNKNOWN = 1
    NOT_ADMIN = 2
    LAYOUT_UNKNOWN = 3
    LAYOUT_INVALID = 4
    ARENA_RANGE = 5
    FIELD_INVALID = 6
    LIMIT_EXCEEDED = 7
    DRAM_FULL = 8
    STORE_FULL = 9
    DEVICE_FAILED = 10
    NOT_STORED = 11
    CHECKSUM = 12
    SEQUENCE_EXISTS = 13
    SEQUENCE_UNKNOWN = 14
    LEASE_UNKNOWN = 15
    DRAINING = 16
    DEADLINE = 17
    INTERNAL = 18
    SEQUENCE_CONFLICT = 19
    ACCESS_REFUSED = 20
