"""The slices of a chunk as the bytes that the codec of its layout makes of them, and back. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine_adapters.codecs.codec import Codec, Payload
from engine_adapters.codecs.errors import StatesError
from engine_adapters.codecs.registry import codec_of_layer
from engine_adapters.codecs.slice_shape import SliceShape
from kvstored_contract.layout import LayerState, StateLayout

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """One codec for every stored layer. Immutable: any number of threads may share one.

    ``states`` describes the states themselves. ``layout`` is what the store gets: it names
    the codec, and its ``token_bytes`` bound what a slice may take. ``shapes`` are those of the
    decoded slices, ``[2, tokens, kv_heads, head_dim]`` or ``[tokens, hidden_size]``, None for
    layers that store nothing.
    """

    states: StateLayout
    layout: StateLayout
    shapes: tuple[Shape | None, ...]
    dtype: torch.dtype
    codecs: tuple[Codec, ...]

    @classmethod
    def of(
        cls, states: StateLayout, shapes: Sequence[Shape | None], dtype: torch.dtype, name: str
    ) -> "ChunkCodec":
        """The codec ``name`` (see ``codecs.registry``) for the states that a raw layout describes.

        Raises CodecError for an unknown name and for shapes and dtypes that have no codec, and
        ValueError where the shapes are not those of the layout's slices.
        """
        if len(shapes) != states.layer_count:
            raise ValueError(f"{len(shapes)} shapes for a layout of {states.layer_count} layers")
        count = states.layer_count
        codecs = tuple(codec_of_layer(name, layer=i, layer_count=count) for i in range(count))
        layers = []
        for layer, (shape, codec) in enumerate(zip(shapes, codecs, strict=True)):
            raw_bytes = 0 if shape is None else SliceShape(shape, dtype).raw_bytes
            if raw_bytes != states.slice_bytes(layer):
                raise ValueError(
                    f"layer {layer} has slices of {states.slice_bytes(layer)} bytes in the layout "
                    f"but of {raw_bytes} by their shape"
                )
            most = 0 if shape is None else codec.bytes_max(shape, dtype)
            kind = states.layers[layer].kind
            layers.append(LayerState(kind, -(-most // states.chunk_tokens)))
        layout = replace(states, layers=tuple(layers), codec=name)
        return cls(states, layout, tuple(shapes), dtype, codecs)

    def encode(self, slices: Sequence[Tensor | None]) -> tuple[bytes, ...]:
        """The payload of each layer of a chunk; empty for layers that store nothing.

        ``slices`` are CPU tensors of ``shapes``, or of fewer tokens for a short chunk, and of
        ``dtype``. Raises CodecError for others, and for values that the codec refuses: the remedy
        is not to store that chunk.
        """
        return tuple(
            b"" if shape is None else codec.encode(_checked(states, shape, self.dtype))
            for states, shape, codec in zip(slices, self.shapes, self.codecs, strict=True)
        )

    def slice_bytes(self, payloads: Sequence[Payload]) -> tuple[int, ...]:
        """What ``NewChunk.slice_bytes`` is for a chunk of these payloads."""
        return tuple(map(len, payloads)) if self.layout.is_encoded else ()

    def place(self, payloads: Sequence[Payload], memory: memoryview, chunk: int = 0) -> None:
        """Copies a chunk's payloads to where ``Placement.contiguous`` has them in a region."""
        stride = self.layout.layer_stride
        start = chunk * stride * self.layout.layer_count
        for layer, payload in enumerate(payloads):
            first = start + layer * stride
            memory[first : first + len(payload)] = payload

    def decode(self, layer: int, payload: Payload, out: Tensor) -> None:
        """Decodes a slice of ``layer`` into ``out``, contiguous and of its shape and dtype.

        ``payload`` has exactly the bytes that were stored (``Read.slice_bytes``). Raises
        PayloadError: then the slice is a miss.
        """
        self.codecs[layer].decode(payload, out)


def _checked(states: Tensor | None, shape: Shape, dtype: torch.dtype) -> Tensor:
    if states is None or not _fits(tuple(states.shape), shape) or states.dtype is not dtype:
        given = "nothing" if states is None else f"{list(states.shape)} {states.dtype}"
        raise StatesError(f"a slice of {list(shape)} {dtype} is wanted, not {given}")
    return states


def _fits(given: Shape, complete: Shape) -> bool:
    """Whether a slice of that shape is one of a complete chunk, or of its first tokens."""
    axis = len(complete) // 2 - 1
    if len(given) != len(complete) or not 1 <= given[axis] <= complete[axis]:
        return False
    return (*given[:axis], *given[axis + 1 :]) == (*complete[:axis], *complete[axis + 1 :])
