"""Codecs by their names, which are what a layout carries."""

from engine_adapters.codecs.cachegen import CacheGenCodec
from engine_adapters.codecs.codec import Codec
from engine_adapters.codecs.errors import CodecError
from engine_adapters.codecs.int3 import Int3Codec
from engine_adapters.codecs.int8 import Int8Codec
from engine_adapters.codecs.raw import RawCodec
from engine_adapters.codecs.zstd import ZstdCodec

_SAME_IN_ALL_LAYERS: dict[str, Codec] = {
    codec.name: codec for codec in (RawCodec(), ZstdCodec(), Int8Codec(), Int3Codec())
}

CODEC_NAMES = (*_SAME_IN_ALL_LAYERS, CacheGenCodec.name)
"""Every name, lossless codecs first."""


def codec_of_layer(name: str, *, layer: int, layer_count: int) -> Codec:
    """The codec ``name`` for layer ``layer`` (from 0) of a model of ``layer_count`` layers.

    What one layer's codec encoded any layer's decodes. Raises CodecError for an unknown
    name and for a layer that does not exist.
    """
    if not 0 <= layer < layer_count:
        raise CodecError(f"layer {layer} does not exist in a model of {layer_count} layers")
    if name == CacheGenCodec.name:
        return CacheGenCodec.of_layer(layer, layer_count)
    codec = _SAME_IN_ALL_LAYERS.get(name)
    if codec is None:
        raise CodecError(f"no codec is named {name!r}; there are {', '.join(CODEC_NAMES)}")
    return codec
