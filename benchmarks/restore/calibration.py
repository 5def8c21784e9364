"""From nominal speeds to costs: the paper's section 3.2 and two factors out of its text.

Both come from sentences of the paper that are not among the compared speed-ups, and hold
for all rows:

* how much of its FLOPS an A100 reaches when it projects, from the bandwidths at which
  reading and projecting take equally long (section 6.1.3), for 7B and for 13B;
* what attention costs, from the loss of 28 % between 1K and 16K tokens (section 6.2.3).

The other GPUs are taken to reach the same share of their FLOPS, and computing from tokens the
same as projecting, as section 3.2 does with its one FLOPS. Several GPUs are that many times
as fast: the all-gather is "a small overhead" (section 5).
"""

import statistics

from benchmarks.restore.platforms import A100, Platform
from benchmarks.restore.shapes import LLAMA_7B, LLAMA_13B, OPT_30B, ModelShape
from engine_adapters.restore import CostProfile

BALANCE_BYTES_PER_S = {LLAMA_7B: 24e9, LLAMA_13B: 21e9, OPT_30B: 37e9}
"""Section 6.1.3: where reading hidden states takes as long as projecting them, on A100s. The
one of 30B is not used: the paper's own schedule and speed-ups for 30B contradict it."""
ATTENTION_LOSS = 0.28
"""Section 6.2.3: by which recomputing 7B slows down from 1K to 16K tokens of history."""
ATTENTION_TOKENS = (1024, 16384)
_DENSE_FLOP = 20
"""Section 3.2: 24 for each token and element of the squared hidden size, less the 4 of K and V."""
_KV_FLOP = 4


def _projection_flop(shape: ModelShape) -> float:
    """Section 3.2, for one token and layer."""
    return _KV_FLOP * shape.hidden_size * shape.kv_size


def _token_flop(shape: ModelShape) -> float:
    """Section 3.2 without attention, for one token and layer."""
    return _DENSE_FLOP * shape.hidden_size**2 + _projection_flop(shape)


def _measured_efficiency(shape: ModelShape) -> float:
    project_s = shape.hidden_bytes / BALANCE_BYTES_PER_S[shape]
    return _projection_flop(shape) / project_s / A100.flops_per_s


FLOPS_EFFICIENCY = {shape.name: _measured_efficiency(shape) for shape in (LLAMA_7B, LLAMA_13B)}
"""Share of the nominal FLOPS, by model."""
FLOPS_EFFICIENCY_ELSE = statistics.mean(FLOPS_EFFICIENCY.values())
"""Of other models, OPT-30B among them."""


def _attention_flop() -> float:
    """For each pair of tokens and each element of the hidden size; section 3.2 says 1."""
    short, long = ATTENTION_TOKENS
    share = ATTENTION_LOSS / ((1 - ATTENTION_LOSS) * long / short - 1)
    return share * _token_flop(LLAMA_7B) / (short * LLAMA_7B.hidden_size)


ATTENTION_FLOP = _attention_flop()


def profile_of(platform: Platform, shape: ModelShape) -> CostProfile:
    """The costs of one layer of a model on a platform."""
    efficiency = FLOPS_EFFICIENCY.get(shape.name, FLOPS_EFFICIENCY_ELSE)
    flops_per_s = shape.gpu_count * platform.flops_per_s * efficiency
    return CostProfile(
        model=shape.name,
        machine=f"{shape.gpu_count} x {platform.name}, {platform.storage}",
        measured_at_s=1.0,
        hidden_bytes=shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        compute_token_s=_token_flop(shape) / flops_per_s,
        compute_square_s=ATTENTION_FLOP * shape.hidden_size / flops_per_s,
        project_token_s=_projection_flop(shape) / flops_per_s,
        read_bytes_per_s=platform.read_bytes_per_s(shape.gpu_count),
    )


def balance_bytes_per_s(shape: ModelShape) -> float:
    """Where reading hidden states takes as long as projecting them on A100s, by our costs."""
    return shape.hidden_bytes / profile_of(A100, shape).project_token_s
