"""How the shipped model is trained. Pure."""

from benchmarks.quality.training.batches import BatchShape
from benchmarks.training.plan import Plan, Stage

CURRICULUM = (
    Stage(
        step_count=60,
        batch=BatchShape(
            sequence_count=64,
            recall_count=48,
            position_count=64,
            record_count=8,
            has_text=False,
        ),
    ),
    Stage(
        step_count=60,
        batch=BatchShape(
            sequence_count=32,
            recall_count=24,
            position_count=128,
            record_count=16,
            has_text=False,
        ),
    ),
    Stage(
        step_count=120,
        batch=BatchShape(sequence_count=16, recall_count=8, position_count=256, record_count=40),
    ),
    Stage(
        step_count=960,
        batch=BatchShape(sequence_count=8, recall_count=3, position_count=512, record_count=80),
    ),
)
"""From short sequences that are mostly questions to long ones that are mostly text.

Text is there from the start: its loss would hurt recall most where it came late, all at once.
"""

PLAN = Plan(seed=20, stages=CURRICULUM)
