"""How the blocks of a layer lie in the memory of its cache. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

TOKEN_AXES = {3: 1, 4: 2, 5: 2}
"""Which axis of a cache counts tokens, by how many it has: vLLM shows [blocks, tokens, latent],
[blocks, heads, tokens, content], [2, blocks, tokens, heads, head_size] and
[blocks, 2, tokens, heads, head_size], whatever lies next to each other in memory."""

HALVED_AXES = 5
"""A cache with so many axes has keys and values apart, maybe before its blocks."""


class BlockShapeError(ValueError):
    """A KV cache whose blocks are not moved; the message names the layer."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """``sizes`` and ``strides`` in bytes: of blocks, of the runs of one, and of bytes in a run.

    The runs are in the order of memory, and as long as they are without a gap.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def block_bytes(self) -> int:
        """Of one block, without what lies between its runs."""
        return prod(self.sizes[1:])

    def is_in(self, item_bytes: int) -> bool:
        """Whether blocks, and all that lies between them, are whole numbers of such items."""
        return all(part % item_bytes == 0 for part in (self.sizes[-1], *self.strides[:-1]))

    def in_items(self, item_bytes: int) -> "BlockLayout":
        """The same with sizes and strides in items."""
        return BlockLayout(
            (*self.sizes[:-1], self.sizes[-1] // item_bytes),
            (*(stride // item_bytes for stride in self.strides[:-1]), 1),
        )


def block_layout(
    shape: Sequence[int],
    strides: Sequence[int],
    *,
    item_bytes: int,
    block_count: int,
    name: str,
) -> BlockLayout:
    """The blocks of layer ``name``, whose cache has a shape and strides in items.

    A cache may have several blocks of its kernels for each of the engine's ``block_count``; then a
    block is the bytes of these, one behind the other. Raises BlockShapeError.
    """
    axis = _block_axis(shape, block_count)
    if axis is None:
        raise BlockShapeError(
            f"the cache of {name} is {tuple(shape)}, of which no axis counts {block_count} blocks"
        )
    parts = shape[axis] // block_count
    inner = [
        (size, stride)
        for other, (size, stride) in enumerate(zip(shape, strides, strict=True))
        if other != axis and size > 1
    ]
    block_stride = strides[axis] * parts
    if parts > 1:
        within = [each for each in inner if each[1] < strides[axis]]
        token_axis = TOKEN_AXES.get(len(shape), 0)
        tokens = (shape[token_axis], strides[token_axis])
        if within and max(within, key=lambda each: each[1]) != tokens:
            raise BlockShapeError(
                f"each block of {name} is {parts} blocks of the attention kernels, whose heads "
                f"lie outside of their tokens; set --block-size to {shape[token_axis]}"
            )
        inner.append((parts, strides[axis]))
    sizes, steps = _merged(sorted(inner, key=lambda each: -each[1]))
    if not steps or steps[-1] != 1:
        raise BlockShapeError(f"the blocks of {name} are no runs of bytes")
    return BlockLayout(
        (block_count, *sizes[:-1], sizes[-1] * item_bytes),
        (block_stride * item_bytes, *(step * item_bytes for step in steps[:-1]), 1),
    )


def _block_axis(shape: Sequence[int], block_count: int) -> int | None:
    leading = range(2 if len(shape) == HALVED_AXES else 1)
    exact = [axis for axis in leading if shape[axis] == block_count]
    split = [axis for axis in leading if shape[axis] and shape[axis] % block_count == 0]
    return next(iter((*exact, *split)), None)


def _merged(dimensions: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Sizes and strides of dimensions in the order of memory, those without a gap as one."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, step in dimensions:
        if steps and steps[-1] == size * step:
            sizes[-1], steps[-1] = sizes[-1] * size, step
        else:
            sizes.append(size)
            steps.append(step)
    return sizes, steps
