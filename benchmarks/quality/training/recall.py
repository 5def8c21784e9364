"""How much a network recalls at each length that it is trained at."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from benchmarks.quality.training.batches import RECALLED, BatchShape
from benchmarks.training.batch import Batch
from benchmarks.training.network import Llama
from benchmarks.training.plan import Plan

CHECKED_TOKENS = 2048
"""Of each length."""
CHECKED_BATCH = -1
"""A number that no training step has."""


def recall_by_length(
    network: Llama, plan: Plan[BatchShape], draw: Callable[[BatchShape, int], Batch]
) -> dict[str, float]:
    """Which share of the values asked for comes out first, by positions of a sequence.

    Sequences are as those of the plan's stages, but that all have records.
    """
    shapes = _checked(stage.batch for stage in plan.stages)
    return {
        str(shape.position_count): _recalled_share(network, draw(shape, CHECKED_BATCH))
        for shape in shapes
    }


def _checked(shapes: Iterable[BatchShape]) -> list[BatchShape]:
    found = []
    for shape in shapes:
        count = max(1, CHECKED_TOKENS // shape.position_count)
        found.append(replace(shape, sequence_count=count, recall_count=count))
    return found


@torch.inference_mode()
def _recalled_share(network: Llama, batch: Batch) -> float:
    are_recalled = batch.kinds == RECALLED
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(batch.inputs, are_recalled)
    hits = logits.argmax(-1) == batch.targets[are_recalled]
    return float(hits.float().mean())
