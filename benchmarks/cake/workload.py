"""What one restoration of a paper's evaluation consists of. Pure."""

from dataclasses import dataclass

from benchmarks.cake.platforms import LONG_ALPACA_13B, TWO_A100, Gpus, Model

CHUNK_TOKENS = 128
"""Of a fetch (Cake, section 5.1)."""
STEP_TOKENS = 512
"""The token budget of a step unless table 4 says otherwise (section 5.1 of both versions)."""
TOKENS = 16 * 1024
FULL_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A prompt of ``tokens``, all of it stored, on a server with a bandwidth.

    ``share`` is the part of a step's token budget that this request has (section 5.1, GPU
    resource utilization), ``bits`` what a stored value takes.
    """

    gpus: Gpus = TWO_A100
    model: Model = LONG_ALPACA_13B
    gbit_per_s: float
    share: float = 1.0
    tokens: int = TOKENS
    step_tokens: int = STEP_TOKENS
    bits: float = FULL_BITS
