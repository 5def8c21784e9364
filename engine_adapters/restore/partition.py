"""The partition formulas of HCache, section 4.1.2, over layers or over tokens."""

import math
from dataclasses import dataclass

from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.source import Source

_FLOAT_ERROR = 1e-12
"""Relative; of a few operations on 64-bit floats, with room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """``main_count`` of the units by the main source, the others by its complement."""

    main_count: int
    other_count: int
    other: Source


def hcache_partition(costs: LayerCosts, unit_count: int) -> Partition:
    """L_H and L_O as printed in HCache, section 4.1.2; the main source is the hidden states.

    Where projecting takes longer than reading (C_H > IO_H), the others are loaded as keys
    and values; else they are computed from the tokens. The paper rounds L_H up in both
    cases, so the slower channel is never the one that the complement uses.

    A loaded layer relieves the compute side by C_H less ``load_s`` only, and occupies it
    where the paper's formula has 0: both channels take as long where L_H (C_H - IO_H) =
    L_O (IO_KV - load_s), which is the paper's with ``load_s`` 0.
    """
    if costs.project_s > costs.io_hidden_s:
        share = _relieved_share(costs)
        other = Source.KV
    else:
        share = costs.compute_s / (costs.compute_s + (costs.io_hidden_s - costs.project_s))
        other = Source.COMPUTE
    return _rounded_up(share, unit_count, other)


def hybrid_partition(costs: LayerCosts, unit_count: int) -> Partition:
    """The naive hybrid of section 6.3.1; the main source is the stored keys and values.

    The paper gives no formula. This is its second one with the costs of loading (IO_KV, and
    nothing to project but ``load_s``) instead of those of hidden states.
    """
    if costs.load_s >= costs.compute_s:
        share = 0.0
    else:
        share = costs.compute_s / (costs.compute_s + max(0.0, costs.io_kv_s - costs.load_s))
    return _rounded_up(share, unit_count, Source.COMPUTE)


def _relieved_share(costs: LayerCosts) -> float:
    """Of hidden states beside KV, where projecting is the slower channel."""
    if costs.load_s >= costs.project_s:
        return 1.0
    # Where reading KV is no longer than loading it, the compute side is always the slower one.
    idle_s = max(0.0, costs.io_kv_s - costs.load_s)
    return idle_s / (idle_s + (costs.project_s - costs.io_hidden_s))


def _rounded_up(share: float, unit_count: int, other: Source) -> Partition:
    """A share is at most 1, so rounding up never asks for more units than there are.

    A product that is whole but for the error of floats is not rounded up.
    """
    main_count = math.ceil(unit_count * share * (1 - _FLOAT_ERROR))
    return Partition(main_count=main_count, other_count=unit_count - main_count, other=other)
