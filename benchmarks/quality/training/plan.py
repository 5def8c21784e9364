"""How the shipped model is trained. Pure."""

from dataclasses import dataclass

from benchmarks.quality.training.batches import BatchShape

BATCH = BatchShape(sequence_count=8, recall_count=3, position_count=512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``step_count`` steps; the rates rise, stay, and fall to zero in the last ``decay_share``.

    ``matrix_rate`` is that of projections (Muon), ``other_rate`` that of all else (AdamW).
    ``recall_weight`` is the part of recalled values in the loss, beside 1 of the text.
    """

    seed: int = 20
    vocab_size: int = 2048
    batch: BatchShape = BATCH
    step_count: int = 2400
    warmup_steps: int = 50
    decay_share: float = 0.3
    matrix_rate: float = 0.02
    other_rate: float = 0.003
    weight_decay: float = 0.01
    gradient_norm_max: float = 1.0
    recall_weight: float = 1.0

    def rate_share(self, step: int) -> float:
        """Which part of the rates step ``step`` has, counted from 0."""
        rising = (step + 1) / self.warmup_steps
        falling = (self.step_count - step) / (self.decay_share * self.step_count)
        return max(0.0, min(1.0, rising, falling))
