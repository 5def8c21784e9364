"""vLLM's group of tensor-parallel ranks. Imports vLLM."""

from collections.abc import Sequence

import torch
from torch import Tensor, distributed
from vllm.distributed.parallel_state import get_tp_group

from engine_adapters.vllm.worker_side.meetings import Meetings


class TensorRanks:
    """Calls go through the groups that vLLM has made: gloo for numbers, the device's for bytes."""

    def __init__(self) -> None:
        self._group = get_tp_group()

    @property
    def size(self) -> int:
        """As in ``RankGroup``."""
        size: int = self._group.world_size
        return size

    def least(self, numbers: Sequence[int]) -> list[int]:
        """As in ``RankGroup``."""
        said = torch.tensor(numbers, dtype=torch.int64, device="cpu")
        distributed.all_reduce(said, op=distributed.ReduceOp.MIN, group=self._group.cpu_group)
        agreed: list[int] = said.tolist()
        return agreed

    def gather(self, part: Tensor, into: Tensor) -> None:
        """As in ``RankGroup``."""
        distributed.all_gather_into_tensor(
            into.view(-1), part.view(-1), group=self._group.device_group
        )


def meetings_of_ranks() -> Meetings | None:
    """Of this worker with the others that share each layer; None where it has it alone."""
    ranks = TensorRanks()
    return Meetings(ranks) if ranks.size > 1 else None
