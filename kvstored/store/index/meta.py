"""What the index knows of itself. Pure."""

import struct
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError

VERSION = 1
_META = struct.Struct("<HB5x16sQ")
_CHECKSUM = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMeta:
    """The device set (16 bytes) that the index belongs to, and how it was left.

    ``epoch`` is that of the daemon that wrote it last, ``clean`` tells whether that
    daemon closed it. An index without meta data is incomplete.
    """

    set_id: bytes
    epoch: int
    clean: bool

    def is_outdated(self, *, set_id: bytes, epoch: int) -> bool:
        """Whether devices of ``set_id`` in ``epoch`` were served since: this is an older copy.

        A start commits its epoch to the index before it writes it to the first superblock.
        So the index of a set is never behind its devices, and ahead of them after a start
        that was cut short.
        """
        return self.set_id == set_id and self.epoch < epoch

    def encode(self) -> bytes:
        """Value of the entry; its last eight bytes are the checksum of the rest."""
        body = _META.pack(VERSION, self.clean, self.set_id, self.epoch)
        return body + _CHECKSUM.pack(checksum(body))

    @classmethod
    def decode(cls, value: bytes) -> "IndexMeta":
        """Parses the value; raises FormatError."""
        if len(value) != _META.size + _CHECKSUM.size:
            raise FormatError(f"index meta of {len(value)} bytes")
        body = value[: _META.size]
        if _CHECKSUM.unpack_from(value, _META.size)[0] != checksum(body):
            raise FormatError("index meta checksum")
        version, clean, set_id, epoch = _META.unpack(body)
        if version != VERSION:
            raise FormatError(f"index meta version {version}, expected {VERSION}")
        return cls(set_id=set_id, epoch=epoch, clean=bool(clean))
