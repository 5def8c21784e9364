"""How a model is trained: sizes of batches, and rates. Pure."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class BatchSize(Protocol):
    """What every shape of a batch has."""

    @property
    def sequence_count(self) -> int:
        """Sequences of a batch."""

    @property
    def position_count(self) -> int:
        """Tokens of a sequence."""


ShapeT = TypeVar("ShapeT", bound=BatchSize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Generic[ShapeT]):
    """``step_count`` steps with batches of one shape."""

    step_count: int
    batch: ShapeT


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[ShapeT]):
    """All ``stages``; the rates rise, stay, and fall to zero in the last ``decay_share``.

    ``matrix_rate`` is that of projections (Muon), ``other_rate`` that of all else (AdamW).
    ``answer_weight`` is the part of each kind of answers in the loss, beside 1 of the text.
    """

    seed: int
    stages: tuple[Stage[ShapeT], ...]
    vocab_size: int = 2048
    warmup_steps: int = 50
    decay_share: float = 0.3
    matrix_rate: float = 0.02
    other_rate: float = 0.003
    weight_decay: float = 0.01
    gradient_norm_max: float = 1.0
    answer_weight: float = 1.0

    @property
    def step_count(self) -> int:
        """Of all stages."""
        return sum(stage.step_count for stage in self.stages)

    def batch(self, step: int) -> ShapeT:
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
