"""Time to the first token: restoring the history, then prefilling what is new.

HCache, section 6, metrics: TTFT is the duration of the restoration and prefill phase.
"""

from dataclasses import dataclass, field

from benchmarks.restore.calibration import profile_of
from benchmarks.restore.claim import Claim
from benchmarks.restore.platforms import Platform
from benchmarks.restore.setting import Setting
from benchmarks.restore.shapes import ELEMENT_BYTES, ModelShape
from engine_adapters.restore import Mode

MEMORY_BYTES_PER_S = 1.555e12
"""Of an A100 with 40 GB, by its data sheet."""
_PARAMETERS = 12
"""Of a layer, for each element of the squared hidden size: section 3.2 counts 24 FLOP of two for
each parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Tokens of the history and tokens that are new."""

    name: str
    history_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftSetting:
    """A request to a model on a platform, and what the paper says of its TTFT.

    ``hit_ratio`` is how many of such requests find their history in the GPU's memory.
    """

    shape: ModelShape
    platform: Platform
    request: Request
    hit_ratio: float = 0.0
    claims: tuple[Claim, ...] = field(default=())
    why: str = ""

    @property
    def name(self) -> str:
        """For the first column of a table."""
        return f"{self.shape.name} {self.request.name}"

    def restore_s(self, mode: Mode) -> float:
        """Mean over requests, those that hit included."""
        history = Setting(
            shape=self.shape, platform=self.platform, token_count=self.request.history_tokens
        )
        return (1 - self.hit_ratio) * history.token_count / history.tokens_per_s(mode)

    @property
    def prefill_s(self) -> float:
        """Of the new tokens behind the history: reading the weights once, or longer."""
        shape, profile = self.shape, profile_of(self.platform, self.shape)
        weight_bytes = _PARAMETERS * ELEMENT_BYTES * shape.layer_count * shape.hidden_size**2
        weights_s = weight_bytes / (shape.gpu_count * MEMORY_BYTES_PER_S)
        history, new = self.request.history_tokens, self.request.new_tokens
        pairs = (history + new) ** 2 - history**2
        layer_s = profile.compute_token_s * new + profile.compute_square_s * pairs
        return max(weights_s, shape.layer_count * layer_s)

    def ttft_s(self, mode: Mode) -> float:
        """Seconds until the first token."""
        return self.restore_s(mode) + self.prefill_s

    def speedup(self, claim: Claim) -> float:
        """Ours, for what the claim compares."""
        return self.ttft_s(claim.over) / self.ttft_s(claim.mode)

    def implied_prefill_s(self, claim: Claim) -> float:
        """With so long a prefill our restorations would give the nearer end of the claim."""
        end = claim.low if self.speedup(claim) < claim.low else claim.high
        return (self.restore_s(claim.over) - end * self.restore_s(claim.mode)) / (end - 1)

    def ideal_prefill_s(self, mode: Mode, over_ideal: float) -> float:
        """The same where the paper says how much longer a mode takes than prefilling alone."""
        return self.restore_s(mode) / (over_ideal - 1)
