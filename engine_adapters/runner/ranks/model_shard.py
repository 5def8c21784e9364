"""What of a model, and of its restoration, falls to one of several processes. Pure.

With tensor parallelism a process holds some key heads of every layer, with pipeline
parallelism some layers (a stage); both together are possible.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShard:
    """Consecutive layers, and of each of them consecutive key heads."""

    layers: range
    heads: range

    @classmethod
    def of_rank(
        cls,
        *,
        layer_count: int,
        kv_head_count: int,
        tensor_rank: int,
        tensor_size: int,
        stage: int = 0,
        stage_count: int = 1,
    ) -> "ModelShard":
        """The shard of process ``tensor_rank`` of ``stage``.

        Stages have as many layers as each other, the first ones one more where it does
        not come out even. With more processes than key heads, several hold the same
        head. Raises ValueError when heads or layers cannot be divided.
        """
        if stage_count > layer_count:
            raise ValueError(f"{layer_count} layers are too few for {stage_count} stages")
        return cls(
            layers=even_share(layer_count, stage, stage_count),
            heads=_heads(kv_head_count, tensor_rank, tensor_size),
        )


def even_share(count: int, rank: int, size: int) -> range:
    """Which of ``count`` things in a row the process ``rank`` of ``size`` takes.

    Shares are disjoint and consecutive, cover everything, and differ by one at most; none
    is larger than that of rank 0. So the token shards of a read together are one copy
    (HCache, section 5).
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is not 0 to {size - 1}")
    least, rest = divmod(count, size)
    first = rank * least + min(rank, rest)
    return range(first, first + least + (rank < rest))


def _heads(head_count: int, rank: int, size: int) -> range:
    if head_count % size and size % head_count:
        raise ValueError(
            f"{head_count} key heads cannot be divided among {size} processes: one number "
            "must be a multiple of the other"
        )
    if size <= head_count:
        return even_share(head_count, rank, size)
    holder = rank // (size // head_count)
    return even_share(head_count, holder, head_count)
