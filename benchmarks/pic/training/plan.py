"""How the model is trained that links are judged with. Pure."""

from benchmarks.pic.facts.library import JUDGED, LibraryShape
from benchmarks.pic.training.batches import BatchShape
from benchmarks.training.plan import Plan, Stage

POSITIONS = 1088
"""A little more than a sequence of training has."""
THETA = 500_000.0
"""So slow that half of a head's dimensions hardly turn over all positions."""

CURRICULUM = (
    Stage(
        step_count=60,
        batch=BatchShape(
            sequence_count=48,
            position_count=96,
            library=LibraryShape(
                document_counts=range(2, 4),
                document_tokens=range(14, 25),
                token_count=60,
                fact_count=2,
                chain_count=2,
                class_count=1,
                example_count=2,
                unknown_count=1,
            ),
        ),
    ),
    Stage(
        step_count=80,
        batch=BatchShape(
            sequence_count=24,
            position_count=256,
            library=LibraryShape(
                document_counts=range(2, 6),
                document_tokens=range(24, 61),
                token_count=190,
                fact_count=4,
                chain_count=4,
                class_count=2,
                example_count=2,
                unknown_count=2,
            ),
        ),
    ),
    Stage(
        step_count=120,
        batch=BatchShape(
            sequence_count=12,
            position_count=512,
            library=LibraryShape(
                document_counts=range(3, 9),
                document_tokens=range(40, 97),
                token_count=420,
                fact_count=8,
                chain_count=6,
                class_count=3,
                example_count=3,
                unknown_count=3,
            ),
        ),
    ),
    Stage(
        step_count=40,
        batch=BatchShape(sequence_count=8, position_count=1024, library=JUDGED),
    ),
)
"""From short sequences that are mostly questions to those that are judged."""

PLAN = Plan(
    seed=21,
    stages=CURRICULUM,
    matrix_rate=0.006,
    other_rate=0.001,
    weight_decay=1.35,
)
