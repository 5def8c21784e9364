"""What is stored of every layer. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine_adapters.restore import CostProfile, LayerSchedule, Mode, Source, schedule_for
from engine_adapters.vllm.settings.options import RestoreMode
from kvstored_contract.dtypes import is_dtype
from kvstored_contract.layout import (
    LayerState,
    Rotary,
    Shard,
    StateKind,
    StateLayout,
)

PLANNED_TOKENS = 4096
"""The history that a mixture is planned for: a layout is chosen before anything is stored."""
_NO_NAME = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """Bytes of the states of one rank: of a block in each layer, and of a token's layer input.

    Each of several ranks has as many columns of a layer input (HCache, section 5).
    """

    block_bytes: tuple[int, ...]
    block_tokens: int
    hidden_bytes: int

    @property
    def kv_bytes(self) -> int:
        """Bytes of one token's keys and values in the first layer."""
        return self.block_bytes[0] // self.block_tokens


def all_kv(shape: StateShape) -> tuple[StateKind, ...]:
    """Every layer as blocks of the engine's cache."""
    return (StateKind.KV,) * len(shape.block_bytes)


def hcache_kinds(shape: StateShape, profile: CostProfile | None) -> tuple[StateKind, ...]:
    """Layer inputs, or keys and values, for each layer (HCache, section 4.1).

    By the measured costs of ``profile``; without one the smaller state for all layers.
    """
    layer_count = len(shape.block_bytes)
    if profile is None:
        is_smaller = shape.hidden_bytes < shape.kv_bytes
        return (StateKind.HIDDEN if is_smaller else StateKind.KV,) * layer_count
    return tuple(
        StateKind.KV if source is Source.KV else StateKind.HIDDEN
        for source in hcache_schedule(profile, layer_count).sources
    )


def stored_kinds(
    mode: RestoreMode, shape: StateShape, profile: CostProfile | None
) -> tuple[StateKind, ...]:
    """What an engine in this mode stores of each layer, if it may store layer inputs.

    In mode ``pic`` all layers as their inputs: these can go to any position.
    """
    if mode is RestoreMode.PIC:
        return (StateKind.HIDDEN,) * len(shape.block_bytes)
    if mode in (RestoreMode.HCACHE, RestoreMode.AUTO):
        return hcache_kinds(shape, profile)
    return all_kv(shape)


def engine_profile(profile: CostProfile, shape: StateShape, *, rank_count: int) -> CostProfile:
    """The costs with the bytes of an engine: of what all its ranks read, from the same devices.

    Each rank has the keys and values of its own heads, of which some may be those of another; the
    cache's dtype need not be that of the measured model.
    """
    return replace(
        profile,
        kv_bytes=shape.kv_bytes * rank_count,
        hidden_bytes=shape.hidden_bytes * rank_count,
    )


def hcache_schedule(profile: CostProfile, layer_count: int) -> LayerSchedule:
    """The planner's mixture for a history of PLANNED_TOKENS.

    A layer that it would compute from the tokens is projected from its input, since the engine
    cannot run its first layers alone.
    """
    planned = schedule_for(Mode.HCACHE, profile.costs(PLANNED_TOKENS), layer_count)
    loaded = planned.count(Source.KV)
    return LayerSchedule.of((Source.HIDDEN, layer_count - loaded), (Source.KV, loaded))


def state_layout(
    fingerprint: str,
    *,
    dtype: str,
    shape: StateShape,
    kinds: Sequence[StateKind],
    chunk_tokens: int,
    shard: Shard,
) -> StateLayout:
    """The layout of chunks; raises LayoutError.

    A KV slice is the engine's blocks as they are, keys rotated; a HIDDEN slice
    [chunk_tokens, hidden_size / ranks], the columns of this one.
    """
    return StateLayout(
        model=fingerprint,
        # What the store knows no name for are bytes to it, too; the name tells them apart.
        dtype=dtype if is_dtype(dtype) else f"uint8_{_NO_NAME.sub('_', dtype.lower())}",
        layers=tuple(
            LayerState(
                kind,
                shape.hidden_bytes
                if kind is StateKind.HIDDEN
                else byte_count // shape.block_tokens,
            )
            for kind, byte_count in zip(kinds, shape.block_bytes, strict=True)
        ),
        chunk_tokens=chunk_tokens,
        rotary=Rotary.ROTATED,
        shard=shard,
    )
