"""Where the states of one layer come from in a restoration."""

from enum import StrEnum

from kvstored_contract.layout import StateKind


class Source(StrEnum):
    """How the keys and values of a layer are regained (HCache, section 4.1)."""

    HIDDEN = "hidden"
    """Norm, key and value projection and rotation of the stored input of the layer."""
    KV = "kv"
    """Loaded as they are."""
    COMPUTE = "compute"
    """Computed from the tokens; only possible when the layer before is computed, too."""

    @property
    def kind(self) -> StateKind:
        """What has to be stored of the layer for this."""
        return _KINDS[self]


_KINDS = {
    Source.HIDDEN: StateKind.HIDDEN,
    Source.KV: StateKind.KV,
    Source.COMPUTE: StateKind.NONE,
}
SOURCE_OF = {kind: source for source, kind in _KINDS.items()}
"""The source that a stored kind of state serves."""
