"""What AttentionStore publishes of its own engine (sections 4.2 and 4.3), for LLaMA-13B first."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A model's figures 14 to 17, against computing everything.

    ``ttft_saved`` and ``cost_saved`` are shares of what recomputing takes; the others say how many
    times as much.
    """

    name: str
    ttft_saved: float
    prefill_x: float
    gpu_x: float
    cost_saved: float


MODELS = (
    Published(name="LLaMA-13B", ttft_saved=0.85, prefill_x=6.8, gpu_x=4.0, cost_saved=0.70),
    Published(name="LLaMA-65B", ttft_saved=0.61, prefill_x=2.6, gpu_x=1.9, cost_saved=0.43),
    Published(name="LLaMA-70B", ttft_saved=0.87, prefill_x=7.8, gpu_x=3.3, cost_saved=0.66),
    Published(name="Falcon-40B", ttft_saved=0.86, prefill_x=7.2, gpu_x=3.4, cost_saved=0.68),
)

HISTORIES = ((500, 500), (600, 400), (700, 300), (800, 200), (900, 100))
"""Tokens of a history, and new ones (figure 18)."""
BUFFER_HISTORY, BUFFER_NEW = 1000, 100
"""Those of figure 19."""
BUFFERS = (0, 5, 10, 15)
"""Layers of its read buffers."""
TRUNCATION = 0.5
"""Of a window, what is dropped when it overflows."""
UNBUFFERED_SAVED, BUFFERED_SAVED = 0.35, 0.61
"""Of the time without preloading, with a buffer of no layers and of 15."""
LOAD_OVER_PREFILL = BUFFERED_SAVED / (1 - BUFFERED_SAVED)
"""In figure 19: what a full buffer saves is loading, and the rest is computing."""
SAVING_GAIN_PCT = (13.0, 15.0)
"""Figure 20, of prompts from 1,000 to 1,600 tokens and 20 decoded ones."""

GPU_PER_H, DRAM_PER_GB_H, DISK_PER_GB_H = 5.0, 0.0088, 0.000082
"""Dollars (section 4.2)."""
