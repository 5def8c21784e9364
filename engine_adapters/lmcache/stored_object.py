"""How an object of LMCache becomes a chunk of the store. Pure."""

from functools import lru_cache

from kvstored_contract.layout import LayerState, Rotary, StateKind, StateLayout, hash_fields
from kvstored_contract.limits import LAYERS_MAX, TOKEN_BYTES_MAX

TESTED_VERSIONS = ("0.5.7rc2",)
"""Releases of LMCache that the tests of this package passed with."""

OBJECT_BYTES_MAX = LAYERS_MAX * TOKEN_BYTES_MAX
"""The largest object that has a layout: 128 MiB."""

_MODEL = "objects of lmcache 1"
_DTYPE = "uint8_lmcache"


@lru_cache(maxsize=64)
def layout_of(byte_count: int) -> StateLayout:
    """The layout of objects of 1 to ``OBJECT_BYTES_MAX`` bytes: one token, its bytes in slices.

    All slices but the last one have ``TOKEN_BYTES_MAX`` bytes, a multiple of the stride of slices:
    in an arena the bytes of an object are in a row. Raises LayoutError for another size.
    """
    whole, rest = divmod(byte_count, TOKEN_BYTES_MAX)
    sizes = (TOKEN_BYTES_MAX,) * whole + ((rest,) if rest else ())
    return StateLayout(
        model=_MODEL,
        dtype=_DTYPE,
        layers=tuple(LayerState(StateKind.KV, size) for size in sizes),
        chunk_tokens=1,
        rotary=Rotary.ABSENT,
    )


def key_of(name: str, *, namespace: str, weights: str) -> bytes:
    """The key of the object that LMCache calls ``name``; another one for other ``weights``.

    The size is no part of it, because LMCache asks what is stored by names only. A chunk of
    another size has another layout, so that it is a miss when it is read.
    """
    fields = ["kvstored.lmcache.1", namespace, weights, name]
    return hash_fields([field.encode() for field in fields])
