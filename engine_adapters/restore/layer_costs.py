"""What restoring one layer costs."""

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts:
    """Seconds of one layer for a given number of history tokens; all above 0 and finite.

    The names of HCache, section 4.1.2: ``io_hidden_s`` is IO_H, ``io_kv_s`` IO_KV (reading
    the layer's hidden states, or its keys and values), ``compute_s`` C_Token (the layer from
    the tokens), ``project_s`` C_H (keys and values from hidden states). Raises ValueError.
    """

    io_hidden_s: float
    io_kv_s: float
    compute_s: float
    project_s: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field.name} is {value}; a cost is a finite time above 0 s")
