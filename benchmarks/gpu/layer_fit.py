"""How many layers of a model a machine has room and time for. Pure."""

from dataclasses import dataclass

from benchmarks.gpu.shapes import LayerShape

USES = 2
"""Layouts beside keys and values and hidden states: what ``hcache`` and ``auto`` store, each no
larger than the larger of both."""
SLACK = 1.3
"""Slabs that are not full, and what allocators round up."""
CACHES = 2
"""That of the request, and that of what was there before and is freed late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes that may be used of each; ``saved_bytes`` can be saved in the time that there is."""

    device_bytes: int
    host_bytes: int
    scratch_bytes: int
    saved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """So many layers; ``limited_by`` names what allows no more, "" where all of them fit."""

    layer_count: int
    limited_by: str


def stored_bytes(shape: LayerShape, token_count: int) -> int:
    """What all layouts of one layer take of a history of so many tokens, with slack."""
    larger = max(shape.kv_bytes, shape.hidden_bytes)
    return int(SLACK * token_count * (shape.kv_bytes + shape.hidden_bytes + USES * larger))


def on_device_bytes(shape: LayerShape, token_count: int) -> int:
    """What one layer takes of the device: weights, and the caches of so many tokens."""
    return int(SLACK * (shape.weight_bytes + CACHES * token_count * shape.kv_bytes))


def layers_that_fit(shape: LayerShape, room: Room, *, token_count: int) -> Fit:
    """As many layers as have room everywhere; 0 where not even one has."""
    stored = stored_bytes(shape, token_count)
    counts = {
        "the device's memory": room.device_bytes // on_device_bytes(shape, token_count),
        "the host's memory": room.host_bytes // stored,
        "the scratch folder": room.scratch_bytes // stored,
        "the time to save": room.saved_bytes // stored,
    }
    what = min(counts, key=lambda name: counts[name])
    if counts[what] >= shape.layer_count:
        return Fit(layer_count=shape.layer_count, limited_by="")
    return Fit(layer_count=counts[what], limited_by=what)
