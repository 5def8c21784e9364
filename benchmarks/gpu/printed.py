"""What HCache and Cake print for the machine and the rate that are nearest. Pure."""

import math

from benchmarks.cake.paper_tables import TABLES, Cell
from benchmarks.cake.platforms import H100
from benchmarks.gpu.found import Cell as OurCell
from benchmarks.gpu.scale import DRAM
from benchmarks.gpu.shapes import LLAMA_2_7B, LLAMA_3_8B

HCACHE_DRAM = "1.33-1.81"
"""Over keys and values, section 6.2.1: figure 11 a-c, GPUs A30 to H800, states in DRAM."""
HCACHE_DEVICE = "1.7-2.6"
"""Over keys and values, section 6.2.2: figure 11 d-f, A100, SSDs of 6.9 GB/s; one SSD for each GPU
has 2.09 to 2.66."""
CAKE_TABLE = 3
"""H100, 13B, 16k tokens: five bandwidths and four shares of the machine."""
CAKE_TOKENS_MIN = 8192
"""Shorter histories have no counterpart in that table."""
GIGABIT_BYTES = 1e9 / 8
NOTHING = "-"


def hcache_over_kv(cell: OurCell) -> str:
    """The range of the paper for states of the same kind; it has no grouped heads."""
    if cell.model == LLAMA_3_8B.name:
        return NOTHING
    return HCACHE_DRAM if cell.rate == DRAM else HCACHE_DEVICE


def cake_over_both(cell: OurCell, bytes_per_s: float) -> str:
    """Speed-ups over loading and over computing, of the nearest bandwidth at a full share."""
    if cell.model == LLAMA_3_8B.name or cell.token_count < CAKE_TOKENS_MIN:
        return NOTHING
    gbit_per_s = bytes_per_s / GIGABIT_BYTES
    nearest = min(_h100_cells(), key=lambda one: abs(math.log(one.gbit_per_s / gbit_per_s)))
    return f"{nearest.over_load:g}\\{nearest.over_compute:g} at {nearest.gbit_per_s:g} Gbps"


def _h100_cells() -> list[Cell]:
    (table,) = (table for table in TABLES if table.number == CAKE_TABLE)
    return [one for one in table.cells if one.gpus == H100 and one.share == 1.0]


NEAREST = {
    LLAMA_2_7B.name: "HCache: Llama2-7B; Cake: LongAlpaca-13B",
    LLAMA_3_8B.name: "neither prints a model of grouped heads on one GPU for these columns",
}
