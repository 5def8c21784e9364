"""What is remembered of hashed files, as values and as JSON. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol, Self

VERSION = 1
SETTLED_S = 10
"""More than any file system's clock ticks, and than clocks of its servers differ."""
ENTRIES_MAX = 4096
_NS = 1_000_000_000


class FileState(Protocol):
    """What ``os.stat_result`` says of a file."""

    @property
    def st_size(self) -> int:
        """Bytes."""

    @property
    def st_mtime_ns(self) -> int:
        """When its content changed, in nanoseconds since 1970."""

    @property
    def st_ctime_ns(self) -> int:
        """When anything of it changed, in nanoseconds since 1970."""

    @property
    def st_ino(self) -> int:
        """Number in its file system."""

    @property
    def st_dev(self) -> int:
        """Its file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedFile:
    """A file as it was when it was hashed; times in nanoseconds since 1970, ``digest`` in hex."""

    byte_count: int
    modified_ns: int
    changed_ns: int
    inode: int
    device: int
    hashed_ns: int
    digest: str

    @classmethod
    def of(cls, state: FileState, *, hashed_ns: int, digest: str) -> Self:
        """What a file's state says."""
        return cls(
            byte_count=state.st_size,
            modified_ns=state.st_mtime_ns,
            changed_ns=state.st_ctime_ns,
            inode=state.st_ino,
            device=state.st_dev,
            hashed_ns=hashed_ns,
            digest=digest,
        )

    @property
    def is_settled(self) -> bool:
        """Whether a later change would show in the file's times."""
        return max(self.modified_ns, self.changed_ns) + SETTLED_S * _NS < self.hashed_ns

    def is_still(self, state: FileState) -> bool:
        """Whether ``state`` is that of the file that was hashed."""
        return self.is_settled and self == HashedFile.of(
            state, hashed_ns=self.hashed_ns, digest=self.digest
        )


def encoded(files: Mapping[str, HashedFile]) -> bytes:
    """What is remembered, as JSON; of too many the ones that were hashed last."""
    newest = sorted(files.items(), key=lambda item: item[1].hashed_ns)[-ENTRIES_MAX:]
    entries = {name: asdict(hashed) for name, hashed in newest}
    return json.dumps(
        {"version": VERSION, "checksum": _checksum(entries), "files": entries}
    ).encode()


def decoded(text: bytes) -> dict[str, HashedFile]:
    """The reverse; raises ValueError, KeyError or TypeError for anything else."""
    document = json.loads(text)
    entries = document["files"]
    if document["version"] != VERSION or document["checksum"] != _checksum(entries):
        raise ValueError("the digests are of another version, or damaged")
    return {name: HashedFile(**fields) for name, fields in entries.items()}


def _checksum(entries: Mapping[str, Mapping[str, object]]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
