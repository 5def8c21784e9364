"""How much the decode benchmark measures."""

from dataclasses import dataclass

from engine_adapters.runner.model.random_model import RandomModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A model, the batches that decode with it, and the steps of each.

    The variants take turns, in stints of ``stint_steps`` steps; a cycle is a stint of each. The
    first step of a stint is not counted: the daemon may still be busy with the stint before.
    ``cycles`` are measured of a batch of one, as many fewer of larger ones, whose steps are
    longer, and ``cycles_min`` of the largest. The cycles before them give a variant
    ``lead_steps`` steps, over which its sequences begin: so seals are spread over all steps.
    A row of hidden states takes ``hidden_size`` x 4 bytes, which direct writes want to be 4 KiB.
    """

    shape: RandomModelShape
    batch_sizes: tuple[int, ...]
    history_tokens: int
    lead_steps: int
    stint_steps: int
    cycles: int
    cycles_min: int

    @property
    def lead_cycles(self) -> int:
        """Cycles that are not measured."""
        return -(-self.lead_steps // self.stint_steps)

    def cycles_of(self, batch_size: int) -> int:
        """Cycles that are measured of batches of that size."""
        return max(self.cycles_min, self.cycles // batch_size)

    def variant_steps(self, batch_size: int) -> int:
        """Steps of one variant, of all cycles."""
        return (self.lead_cycles + self.cycles_of(batch_size)) * self.stint_steps


FULL = Scale(
    shape=RandomModelShape(
        vocab_size=2048,
        hidden_size=1024,
        intermediate_size=2816,
        layer_count=8,
        head_count=16,
        kv_head_count=16,
        position_count=8192,
    ),
    batch_sizes=(1, 2, 4, 8, 16, 32),
    history_tokens=512,
    lead_steps=64,
    stint_steps=9,
    cycles=128,
    cycles_min=24,
)

QUICK = Scale(
    shape=RandomModelShape(
        vocab_size=2048,
        hidden_size=1024,
        intermediate_size=2048,
        layer_count=4,
        head_count=16,
        kv_head_count=16,
        position_count=8192,
    ),
    batch_sizes=(1, 8, 32),
    history_tokens=128,
    lead_steps=64,
    stint_steps=9,
    cycles=6,
    cycles_min=6,
)
