"""How the shipped model is trained. Pure."""

from dataclasses import dataclass

from benchmarks.quality.training.batches import BatchShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """``step_count`` steps with batches of one shape."""

    step_count: int
    batch: BatchShape


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All ``stages``; the rates rise, stay, and fall to zero in the last ``decay_share``.

    ``matrix_rate`` is that of projections (Muon), ``other_rate`` that of all else (AdamW).
    ``recall_weight`` is the part of recalled values in the loss, beside 1 of the text.
    """

    seed: int = 20
    vocab_size: int = 2048
    stages: tuple[Stage, ...] = CURRICULUM
    warmup_steps: int = 50
    decay_share: float = 0.3
    matrix_rate: float = 0.02
    other_rate: float = 0.003
    weight_decay: float = 0.01
    gradient_norm_max: float = 1.0
    recall_weight: float = 1.0

    @property
    def step_count(self) -> int:
        """Of all stages."""
        return sum(stage.step_count for stage in self.stages)

    def batch(self, step: int) -> BatchShape:
        """The shape of the batch of step ``step``, counted from 0; after the end, the last one."""
        for stage in self.stages:
            if step < stage.step_count:
                return stage.batch
            step -= stage.step_count
        return self.stages[-1].batch

    def tokens(self, step_count: int) -> int:
        """Of the first ``step_count`` steps together."""
        shapes = [self.batch(step) for step in range(step_count)]
        return sum(shape.sequence_count * shape.position_count for shape in shapes)

    def rate_share(self, step: int) -> float:
        """Which part of the rates step ``step`` has, counted from 0."""
        rising = (step + 1) / self.warmup_steps
        falling = (self.step_count - step) / (self.decay_share * self.step_count)
        return max(0.0, min(1.0, rising, falling))
