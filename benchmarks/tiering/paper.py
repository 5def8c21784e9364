"""What AttentionStore publishes, and what is compared with it (sections 2.3, 4.1 to 4.3)."""

from dataclasses import dataclass

GB = 10**9
TB = 10**12
MB = 10**6

SESSIONS = 9000
SESSIONS_PER_S = 1.0
MEAN_TURNS = 5.75
MULTI_TURN_SHARE = 0.73
LONGER_THAN_2K = 0.47
LONGER_THAN_4K = 0.30
WARM_UP_TURNS = 10_000
"""Of 52 thousand; hits are counted after them."""
BATCH = 24
DRAM_BYTES = 128 * GB
HBM_BYTES = 10 * GB
DISK_BYTES_PER_S = 5e9
"""From the disks into DRAM; section 2.4 says that it is less."""
TRUNCATION = 0.5
"""Part of the context window that is dropped when it overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model with the paper's figures, in percent.

    ``hit`` is that of figures 13 and 24 with DRAM and disks, ``dram_hit`` that of figure 24
    without disks, ``overflow_loss`` what figure 22 says that coupled positions cost, in points.
    """

    key: str
    name: str
    token_bytes: int
    window_tokens: int
    hit: float
    dram_hit: float
    overflow_loss: float


LLAMA_13B = Model(
    key="13b",
    name="LLaMA-13B",
    token_bytes=780_000,
    window_tokens=4096,
    hit=86,
    dram_hit=3.4,
    overflow_loss=17.6,
)
MODELS = (
    LLAMA_13B,
    Model(
        key="65b",
        name="LLaMA-65B",
        token_bytes=2_500_000,
        window_tokens=2048,
        hit=71,
        dram_hit=1.7,
        overflow_loss=41.5,
    ),
    Model(
        key="70b",
        name="LLaMA-70B",
        token_bytes=310_000,
        window_tokens=4096,
        hit=89,
        dram_hit=7.7,
        overflow_loss=18.1,
    ),
    Model(
        key="falcon",
        name="Falcon-40B",
        token_bytes=120_000,
        window_tokens=2048,
        hit=90,
        dram_hit=19.1,
        overflow_loss=18.4,
    ),
)

FIGURE_21 = {
    2 * TB: {"look-ahead": 40.0, "lru": 12.9, "fifo": 9.5},
    10 * TB: {"look-ahead": 86.0, "lru": 58.0, "fifo": 48.0},
}
"""Hits of LLaMA-13B in percent by disk bytes and policy.

For 2 TB the text has the parts of LRU and FIFO (0.5 and 12.4, 0.5 and 9.0), and that
AttentionStore is 27 and 31 above them.
"""
DRAM_SHARE_OF_HITS = 0.996
FIGURE_23 = {0.1: 51.0, 0.25: 98.0}
"""Hits in percent by capacity, as a part of what an hour's sessions would need at most."""
TTL_S = 3600.0
