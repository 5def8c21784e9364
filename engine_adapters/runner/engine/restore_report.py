"""What a restoration gave to one request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What the store gave to one request: leading tokens, and where their bytes came from.

    ``waited_s`` is the part of ``duration_s`` in which nothing could be computed because
    states had not arrived. ``meeting_token`` is where computing from the front first met what
    was loaded from the back (Cake); None where it did not. ``decode_s`` is the processor's time
    of the threads that decoded for it, beside all else. ``recomputed_layer_tokens`` counts tokens,
    each in one layer, that were computed from the tokens because layers after them were loaded.
    ``made_s`` is the part of ``duration_s`` in which layers were made, from states or from
    tokens; 0 where that is not measured. ``is_by_layers`` where each layer of all tokens came
    before the next one. ``first_unstored`` is the first token after the restored ones that the
    store does not have.
    """

    restored_tokens: int = 0
    device_bytes: int = 0
    dram_bytes: int = 0
    duration_s: float = 0.0
    waited_s: float = 0.0
    meeting_token: int | None = None
    decode_s: float = 0.0
    recomputed_layer_tokens: int = 0
    made_s: float = 0.0
    is_by_layers: bool = False
    first_unstored: int = 0
