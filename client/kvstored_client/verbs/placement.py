"""Where the slices of a call lie in the arena. Pure."""

from dataclasses import dataclass
from typing import Self

from kvstored_client.session.region import Region
from kvstored_contract.layout import StateLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Arena address of every slice of a put or a read.

    With l and c counted from the first layer and the first chunk of the call, layer l
    of chunk c lies at ``base + l * layer_stride + c * chunk_stride``. With
    ``block_offsets`` (P entries for each chunk, chunk after chunk) it is cut into P
    equal fragments, fragment p at ``base + l * layer_stride + block_offsets[c * P + p]``.
    All in bytes; offsets that are multiples of 4096 are read into without a copy.

    ``regions`` are those that the addresses lie in: when one of them is released or its
    session has ended, the call is a miss instead of naming other bytes. Without any, the caller
    answers for that itself. Raises ValueError for an address that is none, or that lies in no
    region; the daemon checks where the slices end.
    """

    regions: tuple[Region, ...]
    base: int
    layer_stride: int
    chunk_stride: int = 0
    block_offsets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        least = min(self.block_offsets, default=0)
        if min(self.base, self.layer_stride, self.chunk_stride, least) < 0:
            raise ValueError(
                f"a placement has base {self.base}, layer_stride {self.layer_stride}, "
                f"chunk_stride {self.chunk_stride} and least block offset {least}; none of them "
                "may be negative"
            )
        if self.regions:
            most = max(self.block_offsets, default=0)
            self._check_address(self.base + least)
            self._check_address(self.base + most)

    def _check_address(self, address: int) -> None:
        for region in self.regions:
            if region.offset <= address < region.offset + region.byte_count:
                return
        raise ValueError(f"byte {address} of the arena lies in no region of the placement")

    @classmethod
    def contiguous(
        cls, region: Region, layout: StateLayout, layer_count: int | None = None
    ) -> Self:
        """Chunks one after the other from the start of ``region``, the layers of each together.

        ``layer_count`` is that of the call (default: all layers of the layout).
        """
        layers = layout.layer_count if layer_count is None else layer_count
        return cls(
            regions=(region,),
            base=region.offset,
            layer_stride=layout.layer_stride,
            chunk_stride=layout.layer_stride * layers,
        )

    @staticmethod
    def contiguous_bytes(
        layout: StateLayout, chunk_count: int, layer_count: int | None = None
    ) -> int:
        """Bytes of a region that ``contiguous`` needs for ``chunk_count`` chunks."""
        layers = layout.layer_count if layer_count is None else layer_count
        return layout.layer_stride * layers * chunk_count
