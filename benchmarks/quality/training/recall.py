"""How much a network recalls at each length that it is trained at."""

from collections.abc import Iterable
from dataclasses import replace

import torch

from benchmarks.quality.training.batches import BatchShape, draw_batch
from benchmarks.quality.training.network import Llama
from benchmarks.quality.training.plan import Plan
from benchmarks.quality.training.prepared import Prepared

CHECKED_TOKENS = 2048
"""Of each length."""
CHECKED_BATCH = -1
"""A number that no training step has."""


def recall_by_length(network: Llama, plan: Plan, prepared: Prepared) -> dict[int, float]:
    """Which share of the values asked for comes out first, by positions of a sequence.

    Sequences are as those of the plan's stages, but that all have records.
    """
    shapes = _checked(stage.batch for stage in plan.stages)
    return {
        shape.position_count: _recalled_share(network, plan, prepared, shape) for shape in shapes
    }


def _checked(shapes: Iterable[BatchShape]) -> list[BatchShape]:
    found = []
    for shape in shapes:
        count = max(1, CHECKED_TOKENS // shape.position_count)
        found.append(replace(shape, sequence_count=count, recall_count=count))
    return found


@torch.inference_mode()
def _recalled_share(network: Llama, plan: Plan, prepared: Prepared, shape: BatchShape) -> float:
    batch = draw_batch(prepared.tokens, prepared.words, shape, seed=plan.seed, number=CHECKED_BATCH)
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(batch.inputs, batch.recalled)
    hits = logits.argmax(-1) == batch.targets[batch.recalled]
    return float(hits.float().mean())
