"""Where a restoration from both ends is."""

from dataclasses import dataclass

from engine_adapters.restore import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerSample:
    """Both pointers of one restoration at one time, for plots and tests.

    ``computed_to`` is the compute pointer in tokens, ``loaded_from`` the first token of the
    chunk that was taken into the cache last (the prompt's end before the first).
    """

    now_s: float
    action: Action
    computed_to: int
    loaded_from: int
