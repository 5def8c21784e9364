"""How much the decode benchmark measures."""

from dataclasses import dataclass

from benchmarks.interleave import Rounds
from engine_adapters.runner.random_model import RandomModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A model, the batches that decode with it, and the steps of one repetition.

    ``lead_steps`` come before those that are measured, so that sequences fill their
    chunks at different times and seals are spread over the measured steps. A row of
    hidden states takes ``hidden_size`` x 4 bytes, which direct writes want to be 4 KiB.
    """

    shape: RandomModelShape
    batch_sizes: tuple[int, ...]
    history_tokens: int
    lead_steps: int
    measured_steps: int
    rounds: Rounds


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
    measured_steps=64,
    rounds=Rounds(count=5, count_min=5, time_limit_s=600.0),
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
    measured_steps=32,
    rounds=Rounds(count=3, count_min=3, time_limit_s=60.0),
)
