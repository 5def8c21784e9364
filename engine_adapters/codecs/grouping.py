"""How a matrix of values is cut into the groups that share a scale."""

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

GROUP_VALUES_MAX = 64
"""Values that share a scale: 16 bits of scale are then a quarter of a bit a value."""


class GroupAxis(IntEnum):
    """Along which axis of [tokens, channels] a group extends."""

    TOKENS = 0
    CHANNELS = 1


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups of a matrix [token rows, channels], as equal as they can be.

    ``split`` gives them as [groups, group values, channels] along tokens, and as [rows,
    groups, group values] along channels. Where the axis does not divide, its last row or
    column is repeated ``padding`` times in the last group.
    """

    rows: int
    columns: int
    axis: GroupAxis
    group_count: int
    group_values: int
    padding: int

    @classmethod
    def of(cls, rows: int, columns: int, axis: GroupAxis) -> "Grouping":
        """The groups of a matrix [rows, columns]."""
        length = rows if axis is GroupAxis.TOKENS else columns
        group_count = -(-length // GROUP_VALUES_MAX)
        group_values = -(-length // group_count)
        padding = group_count * group_values - length
        return cls(rows, columns, axis, group_count, group_values, padding)

    @property
    def scale_shape(self) -> tuple[int, int, int]:
        """One value for each group, in the shape that broadcasts over the groups."""
        if self.axis is GroupAxis.TOKENS:
            return self.group_count, 1, self.columns
        return self.rows, self.group_count, 1

    @property
    def scale_count(self) -> int:
        """Groups of the whole matrix."""
        other = self.columns if self.axis is GroupAxis.TOKENS else self.rows
        return self.group_count * other

    def split(self, matrix: Tensor) -> Tensor:
        """The groups of a contiguous matrix: aliased where the axis divides, else a copy."""
        padding = self.padding
        if self.axis is GroupAxis.TOKENS:
            if padding:
                matrix = torch.cat((matrix, matrix[-1:].expand(padding, -1)))
            return matrix.view(self.group_count, self.group_values, self.columns)
        if padding:
            matrix = torch.cat((matrix, matrix[:, -1:].expand(-1, padding)), dim=1)
        return matrix.view(self.rows, self.group_count, self.group_values)

    def join(self, groups: Tensor) -> Tensor:
        """The matrix of contiguous groups, aliased; contiguous itself where the axis divides."""
        if self.axis is GroupAxis.TOKENS:
            return groups.view(-1, self.columns)[: self.rows]
        return groups.view(self.rows, -1)[:, : self.columns]

    def extremes(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest value of each group, both in ``scale_shape``."""
        axis = 1 if self.axis is GroupAxis.TOKENS else 2
        groups = self.split(matrix)
        # Each by itself: aminmax along an axis takes several times as long as both.
        return groups.amin(dim=axis, keepdim=True), groups.amax(dim=axis, keepdim=True)

    def dequantise(self, matrix: Tensor, scales: Tensor, offsets: Tensor | None = None) -> None:
        """Makes of the codes in ``matrix`` code * scale + offset, in place."""
        groups = self.split(matrix)
        groups.mul_(scales.view(self.scale_shape))
        if offsets is not None:
            groups.add_(offsets.view(self.scale_shape))
        if self.padding:
            matrix.copy_(self.join(groups))
