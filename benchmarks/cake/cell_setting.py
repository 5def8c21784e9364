"""A cell of the paper's tables at the size of this machine. Pure."""

from dataclasses import dataclass, replace

from benchmarks.cake.calibration import quotient
from benchmarks.cake.paper_tables import TABLES, Cell
from benchmarks.cake.platforms import GPUS_BY_NAME, LLAMA_8B
from benchmarks.cake.workload import FULL_BITS, TOKENS

SLOW_GBIT_PER_S = 7
CODECS = {FULL_BITS: "raw", 8: "int8", 3: "int3"}
"""What stores a value in so many bits."""
CACHEGEN = "cachegen"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSetting:
    """What is measured for one cell or for several that differ in nothing else.

    The history has ``tokens``, steps have ``step_tokens`` with those of others, of which this
    request has its ``share`` (Cake, section 5.1: GPU resource utilization). ``codec`` is what
    the states are stored with; the paper's is the one of the ``bits``.
    """

    gpus: str
    is_grouped: bool
    gbit_per_s: float
    share: float
    tokens: int
    step_tokens: int
    bits: int
    codec: str

    @classmethod
    def of(cls, cell: Cell, tokens_max: int) -> "CellSetting":
        """A cell where the paper's 16k tokens are ``tokens_max``; MHA or GQA as its model."""
        return cls(
            gpus=cell.gpus.name,
            is_grouped=cell.model is LLAMA_8B,
            gbit_per_s=cell.gbit_per_s,
            share=cell.share,
            tokens=cell.tokens * tokens_max // TOKENS,
            step_tokens=cell.step_tokens,
            bits=cell.bits,
            codec=CODECS[cell.bits],
        )

    @classmethod
    def of_cachegen(cls, tokens_max: int) -> "CellSetting":
        """What table 7 lacks: its 3-bit cell at 32 Gbps with the codec of CacheGen's kind."""
        (cell,) = (cell for cell in TABLES[-1].cells if (cell.gbit_per_s, cell.bits) == (32, 3))
        return replace(cls.of(cell, tokens_max), codec=CACHEGEN)

    @property
    def name(self) -> str:
        """For the keys of its series."""
        heads = "gqa" if self.is_grouped else "mha"
        share = f"{100 * self.share:g}".replace(".", "_")
        return (
            f"{self.gpus.lower()}_{heads}_{self.gbit_per_s:g}gbps_share_{share}_"
            f"{self.tokens}_tokens_step_{self.step_tokens}_{self._width}"
        )

    @property
    def label(self) -> str:
        """For the first column of a table: tokens / tokens of a step come before the bits."""
        heads = "GQA" if self.is_grouped else "MHA"
        return (
            f"{self.gpus} {heads} {self.gbit_per_s:g}G {100 * self.share:g}% "
            f"{self.tokens}/{self.step_tokens} {self._width.replace('_bits', 'b')}"
        )

    @property
    def is_lossless(self) -> bool:
        """Whether what is restored is what was computed, so that the tokens must be equal."""
        return self.bits == FULL_BITS

    @property
    def _width(self) -> str:
        """How wide values are stored; with the codec's name where it has no fixed width."""
        return f"{self.bits}_bits" if self.codec == CODECS[self.bits] else self.codec

    @property
    def token_budget(self) -> int:
        """Tokens of this request in a step."""
        return max(1, round(self.share * self.step_tokens))

    @property
    def others_tokens(self) -> int:
        """Tokens of others in every step."""
        return self.step_tokens - self.token_budget

    def bytes_per_s(self, history_bytes: int, compute_s: float, *, value_bits: int) -> float:
        """The rate of the device, from what MHA at full length and a full budget needs here.

        That history has ``history_bytes`` of raw states, ``value_bits`` each, and takes
        ``compute_s`` to compute. At 7 Gbps and 100 % computing alone takes as many times as
        long as loading alone as it does in the paper's table 3 on these GPUs; other bandwidths
        are in proportion. The paper's raw values have 16 bits: where ours have more, raw
        states come from a device that is faster by as much than that of encoded ones.
        """
        slow_s = compute_s / slow_quotient(self.gpus)
        stored_bits = value_bits if self.is_lossless else FULL_BITS
        bytes_per_value_bit = history_bytes / value_bits
        return stored_bits * bytes_per_value_bit / slow_s * self.gbit_per_s / SLOW_GBIT_PER_S


def slow_quotient(gpus: str) -> float:
    """Computing alone over loading alone at 7 Gbps and 100 %, by the paper's table 3."""
    (cell,) = (
        cell
        for cell in TABLES[0].cells
        if (cell.gpus, cell.gbit_per_s, cell.share) == (GPUS_BY_NAME[gpus], SLOW_GBIT_PER_S, 1)
    )
    return quotient(cell)
