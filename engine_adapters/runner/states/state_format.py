"""How the runner's states lie in the chunks of the store."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine_adapters.chunk_codec import ChunkCodec
from engine_adapters.reading.section import first_stored_layer, sections_of
from engine_adapters.restore import LayerSchedule
from engine_adapters.runner.model.errors import PositionError
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.states.mode_choice import ModelShape
from kvstored_client import RAW, LayerState, Placement, Rotary, StateKind, StateLayout

CHUNK_TOKENS = 64
"""Tokens of a chunk unless the caller chooses otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFormat:
    """The layout that the store knows, and the shapes behind its bytes.

    A slice of a HIDDEN layer is [tokens, hidden_size]: the layer's inputs. One of a KV
    layer is [2, tokens, kv_heads, head_dim]: all unrotated keys, then all values. Layers
    that store nothing (NONE) come first: they are computed again from the tokens.

    With a ``codec`` the store holds what it makes of these slices, and ``layout`` is the
    codec's; without one it holds the slices themselves.
    """

    layout: StateLayout
    hidden_size: int
    kv_head_count: int
    head_dim: int
    dtype: torch.dtype
    codec: ChunkCodec | None = None

    @classmethod
    def of_model(
        cls,
        model: Model,
        fingerprint: str,
        *,
        schedule: LayerSchedule | None = None,
        chunk_tokens: int = CHUNK_TOKENS,
    ) -> "StateFormat":
        """Format of ``model``'s states under ``fingerprint``, as ``schedule`` restores them.

        Without a schedule every layer is stored as KV. Raises ValueError for a schedule of
        other layers than the model's, or one that computes a layer behind a stored one,
        and LayoutError for one that stores nothing.
        """
        config = model.config
        kinds: Sequence[StateKind] = (StateKind.KV,) * config.layer_count
        if schedule is not None:
            kinds = schedule.kinds()
        if len(kinds) != config.layer_count:
            raise ValueError(
                f"a schedule of {len(kinds)} layers does not fit a model of {config.layer_count}"
            )
        layout = StateLayout(
            model=fingerprint,
            dtype=str(model.dtype).removeprefix("torch."),
            layers=tuple(LayerState(kind, token_bytes(model, kind)) for kind in kinds),
            chunk_tokens=chunk_tokens,
            rotary=Rotary.ABSENT if model.rotary is None else Rotary.UNROTATED,
        )
        first_stored_layer(layout)
        return cls(
            layout=layout,
            hidden_size=config.hidden_size,
            kv_head_count=config.kv_head_count,
            head_dim=config.head_dim,
            dtype=model.dtype,
        )

    @classmethod
    def of_directory(
        cls,
        model: Model,
        directory: Path,
        *,
        schedule: LayerSchedule | None = None,
        chunk_tokens: int = CHUNK_TOKENS,
    ) -> "StateFormat":
        """Format of the model that was loaded from ``directory``; reads its weights once."""
        identity = model_fingerprint(directory, model.config)
        return cls.of_model(model, identity, schedule=schedule, chunk_tokens=chunk_tokens)

    def encoded(self, codec: str) -> "StateFormat":
        """These states, stored with the codec of that name; ``raw`` stores them as they are.

        For a format without one. Raises CodecError for an unknown name.
        """
        if codec == RAW:
            return self
        shapes = [
            None if state.kind is StateKind.NONE else self.slice_shape(layer)
            for layer, state in enumerate(self.layout.layers)
        ]
        made = ChunkCodec.of(self.layout, shapes, self.dtype, codec)
        return replace(self, layout=made.layout, codec=made)

    @property
    def states(self) -> StateLayout:
        """The layout of the states themselves, whatever the codec: what a step computes."""
        return self.layout if self.codec is None else self.codec.states

    @property
    def moved_share(self) -> float:
        """Bytes that the store moves at most, as a share of those of the states."""
        return self.layout.chunk_bytes() / self.states.chunk_bytes()

    @property
    def recomputed_layers(self) -> int:
        """How many leading layers store nothing."""
        return first_stored_layer(self.layout)

    def slice_shape(self, layer: int, token_count: int | None = None) -> tuple[int, ...]:
        """Shape of one slice of a stored layer, decoded; by default of a complete chunk."""
        tokens = self.layout.chunk_tokens if token_count is None else token_count
        if self.layout.layers[layer].kind is StateKind.HIDDEN:
            return (tokens, self.hidden_size)
        return (2, tokens, self.kv_head_count, self.head_dim)

    def region_bytes(self, chunk_count: int) -> int:
        """Bytes of a region for ``chunk_count`` chunks that are put."""
        return Placement.contiguous_bytes(self.layout, chunk_count)

    def span_bytes(self, chunk_count: int) -> int:
        """Bytes of a region for ``chunk_count`` chunks that are read: stored layers only."""
        return sum(section.region_bytes(chunk_count) for section in sections_of(self.layout))

    def held_bytes(self, chunk_count: int) -> int:
        """What reading ``chunk_count`` chunks holds: of the arena, or decoded if that is more."""
        return max(self.span_bytes(chunk_count), chunk_count * self.states.chunk_bytes())

    def span_chunks(self, *, span_bytes: int, span_tokens: int) -> int:
        """Chunks of a span of at most so many arena bytes and tokens; at least one."""
        by_bytes = span_bytes // self.span_bytes(1)
        return max(1, min(by_bytes, span_tokens // self.layout.chunk_tokens))

    def check_positions(self, first_position: int) -> None:
        """Raises PositionError unless a history may be restored from ``first_position`` on.

        States of a model without rotary embedding hold the positions at which they were
        computed: they fit nowhere else.
        """
        if first_position == 0:
            return
        if self.layout.rotary is Rotary.ABSENT:
            raise PositionError(
                f"this model learned absolute positions, so its states cannot move to position "
                f"{first_position}: restore them at position 0 or compute them again"
            )
        if self.recomputed_layers:
            raise PositionError(
                f"the first {self.recomputed_layers} layers of this layout are recomputed from "
                f"position 0 on: restore the history at position 0, not {first_position}"
            )


def shape_of(model: Model) -> ModelShape:
    """What a choice of mode depends on."""
    return shape_of_config(model.config, model.dtype)


def shape_of_config(config: ModelConfig, dtype: torch.dtype) -> ModelShape:
    """The same of a model that is not loaded."""
    itemsize = dtype.itemsize
    return ModelShape(
        layer_count=config.layer_count,
        position_count=config.position_count,
        hidden_bytes=config.hidden_size * itemsize,
        kv_bytes=2 * config.kv_head_count * config.head_dim * itemsize,
    )


def token_bytes(model: Model, kind: StateKind) -> int:
    """Bytes that one token takes in one layer of this kind; 0 for NONE."""
    shape = shape_of(model)
    sizes = {StateKind.HIDDEN: shape.hidden_bytes, StateKind.KV: shape.kv_bytes, StateKind.NONE: 0}
    return sizes[kind]
