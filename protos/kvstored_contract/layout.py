"""State layouts: how the attention state of one model is cut into chunks and slices. Pure."""

import hashlib
import re
import struct
from dataclasses import InitVar, dataclass, field
from enum import IntEnum

from kvstored_contract.dtypes import is_dtype
from kvstored_contract.limits import (
    ALIGNMENT_BYTES,
    CHUNK_TOKENS_MAX,
    CODEC_NAME_BYTES_MAX,
    LAYERS_MAX,
    LAYOUT_TEXT_BYTES_MAX,
    SHARDS_MAX,
    TOKEN_BYTES_MAX,
)
from kvstored_protos.v1 import common_pb2

RAW = "raw"
"""The codec of a layout whose slices are the states themselves."""

_CODEC_NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{CODEC_NAME_BYTES_MAX - 1}}}")


class StateKind(IntEnum):
    """What is stored of a layer. Values are those of the protobuf enum."""

    KV = 1
    HIDDEN = 2
    NONE = 3


class Rotary(IntEnum):
    """Whether stored keys carry the rotary embedding. Values are those of the protobuf enum."""

    ROTATED = 1
    UNROTATED = 2
    ABSENT = 3


class LayoutError(ValueError):
    """A layout that cannot be stored; the message says which property is at fault."""


@dataclass(frozen=True, slots=True)
class LayerState:
    """State of one layer: its kind and the bytes that one token takes (0 for NONE).

    In a layout with a codec, ``token_bytes * chunk_tokens`` bounds the bytes of a slice.
    Raises LayoutError for a size that no layer has.
    """

    kind: StateKind
    token_bytes: int

    def __post_init__(self) -> None:
        is_possible = is_whole(self.token_bytes) and 0 <= self.token_bytes <= TOKEN_BYTES_MAX
        if not is_possible or (self.token_bytes == 0) != (self.kind is StateKind.NONE):
            raise LayoutError(
                f"a layer of kind {self.kind.name} cannot have {self.token_bytes} bytes a token; "
                f"it has 1 to {TOKEN_BYTES_MAX}, and 0 if its kind is NONE"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The part of the model that the states belong to; the default is all of it."""

    tensor_rank: int = 0
    tensor_size: int = 1
    pipeline_first_layer: int = 0
    pipeline_layer_count: int = 0

    def __post_init__(self) -> None:
        numbers = (
            self.tensor_rank,
            self.tensor_size,
            self.pipeline_first_layer,
            self.pipeline_layer_count,
        )
        if not all(is_whole(number) and 0 <= number <= SHARDS_MAX for number in numbers):
            raise LayoutError(f"the numbers of a shard must be 0 to {SHARDS_MAX}, not {numbers}")


def is_whole(number: object) -> bool:
    """Whether it counts something, also where it is one of numpy's."""
    return hasattr(type(number), "__index__")


def align_up(byte_count: int) -> int:
    """Rounds ``byte_count`` up to the next multiple of the slice alignment."""
    return -(-byte_count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """How the states of one model lie in chunks.

    A chunk is ``chunk_tokens`` consecutive tokens of all layers; a slice is one
    layer of one chunk. ``model`` is a fingerprint of everything that changes the
    values (weights revision, architecture, rope parameters, adapter version).
    ``codec`` names how slices are encoded. All but RAW give every slice a length of its
    own, which is all that the store knows of a codec.
    Raises LayoutError for a layout that no store accepts. One that ``is_stored`` already was
    accepted by an earlier release, which asked less of its names and its shard.
    """

    model: str
    dtype: str
    layers: tuple[LayerState, ...]
    chunk_tokens: int = 64
    rotary: Rotary = Rotary.UNROTATED
    shard: Shard = Shard()
    codec: str = RAW
    is_stored: InitVar[bool] = False
    layout_id: bytes = field(init=False, repr=False, compare=False)
    """SHA-256 over every property, each field length-prefixed (32 bytes)."""

    def __post_init__(self, is_stored: bool) -> None:
        for name, text in (("model", self.model), ("dtype", self.dtype)):
            if len(text.encode()) > LAYOUT_TEXT_BYTES_MAX:
                raise LayoutError(
                    f"{name} has {len(text.encode())} bytes; at most {LAYOUT_TEXT_BYTES_MAX} "
                    "are stored, so use a digest"
                )
        if not is_stored:
            self._check_names()
            self._check_rank()
        if not _CODEC_NAME.fullmatch(self.codec):
            raise LayoutError(
                f"a codec is named by 1 to {CODEC_NAME_BYTES_MAX} lower-case letters, digits, "
                f"dots, dashes and underscores, not {self.codec!r}"
            )
        if not 1 <= len(self.layers) <= LAYERS_MAX:
            raise LayoutError(f"a layout has 1 to {LAYERS_MAX} layers, not {len(self.layers)}")
        if not (is_whole(self.chunk_tokens) and 1 <= self.chunk_tokens <= CHUNK_TOKENS_MAX):
            raise LayoutError(
                f"chunk_tokens must be 1 to {CHUNK_TOKENS_MAX}, not {self.chunk_tokens}"
            )
        if self.rotary not in tuple(Rotary):
            raise LayoutError(f"rotary must be a member of Rotary, not {self.rotary!r}")
        if all(layer.kind is StateKind.NONE for layer in self.layers):
            raise LayoutError("a layout must store at least one layer")
        object.__setattr__(self, "layout_id", self._digest())

    def _check_names(self) -> None:
        if not self.model:
            raise LayoutError(
                "model is empty: without a fingerprint of the weights two models would share "
                "chunks, so name one"
            )
        if not is_dtype(self.dtype):
            raise LayoutError(
                f"{self.dtype!r} is no dtype; write it as PyTorch does, like bfloat16 or "
                "float8_e4m3fn, or uint8_ and the name of a format of your own"
            )

    def _check_rank(self) -> None:
        rank, size = self.shard.tensor_rank, self.shard.tensor_size
        if rank and rank >= size:
            raise LayoutError(f"there is no rank {rank} among {size}: ranks count from 0")

    @property
    def layer_count(self) -> int:
        """Number of layers, those of kind NONE included."""
        return len(self.layers)

    @property
    def is_encoded(self) -> bool:
        """Whether slices have lengths of their own."""
        return self.codec != RAW

    def slice_bytes(self, layer: int, token_count: int | None = None) -> int:
        """Bytes of one slice of ``token_count`` tokens (default: a complete chunk).

        Of an encoded layout: the most that a slice of a complete chunk may have.
        """
        tokens = self.chunk_tokens if token_count is None else token_count
        return self.layers[layer].token_bytes * tokens

    def chunk_bytes(self, token_count: int | None = None) -> int:
        """Payload bytes of one chunk without any alignment."""
        return sum(self.slice_bytes(layer, token_count) for layer in range(self.layer_count))

    @property
    def layer_stride(self) -> int:
        """Aligned bytes of the largest slice: the natural stride of layers in an arena."""
        return max(align_up(self.slice_bytes(layer)) for layer in range(self.layer_count))

    def _digest(self) -> bytes:
        shard = self.shard
        fields = [
            b"kvstored.layout.1",
            self.model.encode(),
            self.dtype.encode(),
            struct.pack("<IB", self.chunk_tokens, self.rotary),
            struct.pack(
                "<IIII",
                shard.tensor_rank,
                shard.tensor_size,
                shard.pipeline_first_layer,
                shard.pipeline_layer_count,
            ),
            b"".join(struct.pack("<BI", layer.kind, layer.token_bytes) for layer in self.layers),
        ]
        if self.is_encoded:
            fields.append(self.codec.encode())
        return hash_fields(fields)

    def to_proto(self) -> common_pb2.StateLayout:
        """The layout as a protobuf message."""
        return common_pb2.StateLayout(
            model=self.model,
            dtype=self.dtype,
            layers=[
                common_pb2.LayerState(
                    kind=common_pb2.StateKind.ValueType(layer.kind), token_bytes=layer.token_bytes
                )
                for layer in self.layers
            ],
            chunk_tokens=self.chunk_tokens,
            rotary=common_pb2.Rotary.ValueType(self.rotary),
            shard=common_pb2.Shard(
                tensor_rank=self.shard.tensor_rank,
                tensor_size=self.shard.tensor_size,
                pipeline_first_layer=self.shard.pipeline_first_layer,
                pipeline_layer_count=self.shard.pipeline_layer_count,
            ),
            codec=self.codec if self.is_encoded else "",
        )

    @classmethod
    def from_proto(
        cls, message: common_pb2.StateLayout, *, is_stored: bool = False
    ) -> "StateLayout":
        """Parses and validates a message; raises LayoutError."""
        try:
            layers = tuple(
                [LayerState(StateKind(layer.kind), layer.token_bytes) for layer in message.layers]
            )
            rotary = Rotary(message.rotary)
        except LayoutError:
            raise
        except ValueError as error:
            raise LayoutError(str(error)) from error
        return cls(
            model=message.model,
            dtype=message.dtype,
            layers=layers,
            chunk_tokens=message.chunk_tokens,
            rotary=rotary,
            shard=Shard(
                tensor_rank=message.shard.tensor_rank,
                tensor_size=message.shard.tensor_size,
                pipeline_first_layer=message.shard.pipeline_first_layer,
                pipeline_layer_count=message.shard.pipeline_layer_count,
            ),
            codec=message.codec or RAW,
            is_stored=is_stored,
        )


def hash_fields(fields: list[bytes]) -> bytes:
    """SHA-256 over ``fields``, each preceded by its length, so that no two lists collide."""
    digest = hashlib.sha256()
    for one in fields:
        digest.update(struct.pack("<Q", len(one)))
        digest.update(one)
    return digest.digest()
