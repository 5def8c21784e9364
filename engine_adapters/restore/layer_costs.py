"""What restoring one layer costs."""

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts:
    """Seconds of one layer for a given number of history tokens; finite and above 0.

    The names of HCache, section 4.1.2: ``io_hidden_s`` is IO_H, ``io_kv_s`` IO_KV (reading
    the layer's hidden states, or its keys and values), ``compute_s`` C_Token (the layer from
    the tokens), ``project_s`` C_H (keys and values from hidden states). ``load_s``, which may be
    0, is the time that keys and values that were read still take from computing: they are copied
    into the cache and rotated. The paper has none, where a GPU hardly feels it; a CPU does. Raises
    ValueError.
    """

    io_hidden_s: float
    io_kv_s: float
    compute_s: float
    project_s: float
    load_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            may_be_zero = field.name == "load_s"
            if not (math.isfinite(value) and (value > 0 or (value == 0 and may_be_zero))):
                least = "of at least 0 s" if may_be_zero else "above 0 s"
                raise ValueError(f"{field.name} is {value}; a cost is a finite time {least}")
