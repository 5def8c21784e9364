import pytest

from engine_adapters.codecs.errors import CodecError
from engine_adapters.codecs.registry import CODEC_NAMES, codec_of_layer


def test_every_name_has_its_codec() -> None:
    assert CODEC_NAMES == ("raw", "zstd", "int8", "int3", "cachegen")
    for name in CODEC_NAMES:
        assert codec_of_layer(name, layer=0, layer_count=1).name == name


def test_only_cachegen_depends_on_the_layer() -> None:
    for name in CODEC_NAMES:
        codecs = {codec_of_layer(name, layer=layer, layer_count=6) for layer in range(6)}
        assert len(codecs) == (3 if name == "cachegen" else 1)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CodecError, match=r"'gzip'.*raw, zstd, int8, int3, cachegen"):
        codec_of_layer("gzip", layer=0, layer_count=1)


@pytest.mark.parametrize("layer", [-1, 4])
@pytest.mark.parametrize("name", CODEC_NAMES)
def test_a_layer_that_does_not_exist_is_refused(name: str, layer: int) -> None:
    with pytest.raises(CodecError, match="does not exist"):
        codec_of_layer(name, layer=layer, layer_count=4)
