"""From data sheets to costs, with five numbers out of five of the paper's cells.

The paper gives speed-ups, no seconds. But loading alone takes the bytes over the bandwidth,
so the two speed-ups of a cell tell what computing alone takes. Five cells are used, all of 13B
at 100 % utilisation: table 3 at 7 Gbps (loading is longest there, its overheads count least) for
the effective FLOPS of the three servers, table 5's 4k tokens on an A100 at 7 Gbps for what
attention reaches of them, and table 3's A100 at 100 Gbps for what a chunk costs besides its
bytes. Nothing is fitted to another model, share of the budget, chunk size, length or width.
"""

import math
from dataclasses import dataclass
from functools import cache

from benchmarks.cake.paper_tables import TABLES, Cell
from benchmarks.cake.platforms import A100, H100, TWO_A100, Gpus
from benchmarks.cake.workload import CHUNK_TOKENS, FULL_BITS, Workload
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost

_SLOW_GBIT_PER_S = 7
_FAST_GBIT_PER_S = 100
_SHORT_TOKENS = 4096
_GIGABIT_BYTES = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Effective FLOPS by server; what attention reaches of them; what each chunk costs more."""

    flops: dict[str, float]
    attention_efficiency: float
    chunk_overhead_s: float


def chunk_count(workload: Workload) -> int:
    """Chunks of the prompt; all are stored."""
    return math.ceil(workload.tokens / CHUNK_TOKENS)


def weights_s(workload: Workload) -> float:
    """What any step takes at least: it reads the weights once."""
    return workload.model.weight_bytes / workload.gpus.memory_bytes_per_s


def load_cost(workload: Workload, chunk_overhead_s: float) -> LoadCost:
    """Chunks one after the other, as wide as they are compressed."""
    chunk_bytes = int(CHUNK_TOKENS * workload.model.token_bytes * workload.bits / FULL_BITS)
    bytes_per_s = workload.gbit_per_s * _GIGABIT_BYTES
    return LoadCost.of_bytes(chunk_bytes, bytes_per_s=bytes_per_s, issue_s=chunk_overhead_s)


def compute_cost(workload: Workload, calibration: Calibration) -> ComputeCost:
    """Steps of a full budget, of which this request has its share (section 5.1).

    The others have the rest of the tokens, behind histories like this one's.
    """
    flops = calibration.flops[workload.gpus.name]
    token_s = workload.model.token_flop / flops
    others_tokens = (1 - workload.share) * workload.step_tokens
    return ComputeCost(
        step_s=weights_s(workload) + others_tokens * token_s,
        token_s=token_s,
        attention_s=workload.model.attention_flop
        / (flops * calibration.attention_efficiency * workload.share),
    )


@cache
def calibrated() -> Calibration:
    """The five numbers."""
    slow = {gpus: _cell(3, gpus, _SLOW_GBIT_PER_S) for gpus in (A100, TWO_A100, H100)}
    fast = _cell(3, A100, _FAST_GBIT_PER_S)
    short = _cell(5, A100, _SLOW_GBIT_PER_S, _SHORT_TOKENS)
    # Both cells are of the same computation: (load + overhead) * quotient is the same.
    long_s, fast_s = (quotient(cell) * load_alone_s(cell, 0.0) for cell in (slow[A100], fast))
    overhead_s = (fast_s - long_s) / (quotient(slow[A100]) - quotient(fast)) / chunk_count(fast)
    # Two lengths, two unknowns: the inverse of effective FLOPS, without and with attention.
    (long_flop, long_pairs), (short_flop, short_pairs) = _flop(slow[A100]), _flop(short)
    long_s, short_s = (dense_s(cell, overhead_s) for cell in (slow[A100], short))
    determinant = long_flop * short_pairs - short_flop * long_pairs
    flop_s = (long_s * short_pairs - short_s * long_pairs) / determinant
    attention_flop_s = (long_flop * short_s - short_flop * long_s) / determinant
    efficiency = flop_s / attention_flop_s
    return Calibration(
        flops={
            gpus.name: (_flop(cell)[0] + _flop(cell)[1] / efficiency) / dense_s(cell, overhead_s)
            for gpus, cell in slow.items()
        },
        attention_efficiency=efficiency,
        chunk_overhead_s=overhead_s,
    )


def quotient(cell: Cell) -> float:
    """Computing alone over loading alone, by the paper."""
    return cell.over_compute / cell.over_load


def load_alone_s(cell: Cell, chunk_overhead_s: float) -> float:
    """Loading all chunks, then the step that gives the first token."""
    load = load_cost(cell, chunk_overhead_s)
    return chunk_count(cell) * load.chunk_s + weights_s(cell)


def dense_s(cell: Cell, chunk_overhead_s: float) -> float:
    """Computing alone by the paper, without reading weights."""
    step_count = math.ceil(cell.tokens / cell.step_tokens)
    computed_s = quotient(cell) * load_alone_s(cell, chunk_overhead_s)
    return computed_s - step_count * weights_s(cell)


def _flop(cell: Cell) -> tuple[float, float]:
    """Of a whole prompt: without attention, and in attention."""
    pairs = cell.tokens**2 / 2
    return cell.tokens * cell.model.token_flop, pairs * cell.model.attention_flop


def _cell(table: int, gpus: Gpus, gbit_per_s: float, tokens: int | None = None) -> Cell:
    """The only cell of a table with these, at 100 % utilisation."""
    (cell,) = (
        cell
        for cell in next(each for each in TABLES if each.number == table).cells
        if (cell.gpus, cell.gbit_per_s, cell.share) == (gpus, gbit_per_s, 1)
        and cell.tokens in (tokens, *(() if tokens else (cell.tokens,)))
    )
    return cell
