"""The ways to choose the sources of all layers."""

from enum import StrEnum


class Mode(StrEnum):
    """Names under which runner and benchmarks select a way to restore."""

    RECOMPUTE = "recompute"
    """Every layer from the tokens; nothing is stored."""
    KV = "kv"
    """Every layer as keys and values: KV offload."""
    HIDDEN = "hidden"
    """Every layer from hidden states: the paper's HCache-O, without its scheduler."""
    HCACHE = "hcache"
    """Hidden states and what complements them, split by the formulas of section 4.1.2."""
    NAIVE_HYBRID = "naive_hybrid"
    """The first layers from the tokens, the others as keys and values; no hidden states."""
    CAKE = "cake"
    """Tokens from the front computed, tokens from the back from one source, until they meet."""
    AUTO = "auto"
    """Whatever of all these has the shortest predicted duration."""


LAYER_MODES: tuple[Mode, ...] = tuple(mode for mode in Mode if mode is not Mode.CAKE)
"""Those that divide the layers of a history; Cake divides its tokens."""
