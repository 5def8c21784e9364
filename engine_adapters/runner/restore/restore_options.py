"""How a restorer restores."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from engine_adapters.restore import (
    LEAST_WAIT_S,
    SPREAD_UNKNOWN,
    ComputeCost,
    LayerRates,
    LoadCost,
    Preload,
    first_span_chunks,
)
from engine_adapters.runner.restore.pointer_sample import PointerSample
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Order

SPAN_BYTES = 64 * 1024 * 1024
"""Arena bytes of one span at most, unless the caller chooses otherwise."""

SPAN_TOKENS = 1024
"""Tokens of one span at most: the begin of a span's first read and its last projection overlap
with nothing of the same span, and smaller matrices would compute less efficiently."""

TIMEOUT_S = 30.0
"""Longest that one restoration waits for the store; what is missing then is computed."""

TIMEOUT_S_MAX = 600.0
"""What the daemon accepts as a lease and as a deadline."""

STEP_TOKENS = 512
"""Tokens of one step of the engine, unless told otherwise."""

OPENING_S_MAX = 0.5
"""Longest that a request computes nothing while the store has not said what it has."""


class Way(StrEnum):
    """In which order the states of a history come, and what is computed meanwhile."""

    SPANS = "spans"
    """Span after span, each layer after layer, while first layers are recomputed (HCache)."""
    BOTH_ENDS = "both ends"
    """From the last token back, while the first ones are computed (Cake)."""
    LAYERS = "layers"
    """Layer after layer of all tokens, while new tokens are computed (AttentionStore)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """What all restorations of a restorer have in common.

    ``order`` is that of the reads within a span of SPANS: TAIL_FIRST and HEAD_FIRST bring the
    first layer's chunks with those of all others, so that little overlaps. ``step_tokens`` are
    those that a step of the engine may have; first layers are recomputed in such steps.

    ``compute`` is what computing costs at first (``ComputeCost.of_profile``). With it no
    restoration by SPANS takes much longer than computing everything, whatever the store does
    (``engine_adapters.restore.stake``), and none by LAYERS waits longer for what does not come
    (``engine_adapters.restore.layered.layerwise_limit``); ``least_wait_s`` is waited in any case,
    however little there is to compute. ``timeout_s`` limits the waits of one restoration in any
    case.

    With ``layer_rates`` as many of the first layers are recomputed as balances both sides by what
    they lately took, at least those that are not stored; without, those alone. Give the same ones
    to all restorers of a layout.

    Windows of conversations come as ``preload`` says: AUTO compares by ``window_rates``, which all
    of them share and measure, and without these as SPANS. Beside other requests new tokens follow
    LAYERS when ``buffer_layers`` of them are there (default: by the same rates, else 1).

    BOTH_ENDS needs ``compute``, and ``load``, what loading costs at first
    (``LoadCost.of_profile``); ``doubt`` is that of the profile (``CostProfile.doubt``).
    ``observer`` hears of every decision there. Raises ValueError for what no daemon accepts.
    """

    way: Way = Way.SPANS
    order: Order = Order.LAYER_FIRST
    span_bytes: int = SPAN_BYTES
    span_tokens: int = SPAN_TOKENS
    step_tokens: int = STEP_TOKENS
    timeout_s: float = TIMEOUT_S
    compute: ComputeCost | None = None
    load: LoadCost | None = None
    doubt: float = SPREAD_UNKNOWN
    least_wait_s: float = LEAST_WAIT_S
    layer_rates: LayerRates | None = None
    preload: Preload = Preload.AUTO
    window_rates: LayerRates | None = None
    buffer_layers: int | None = None
    opening_s_max: float = OPENING_S_MAX
    clock: Callable[[], float] = time.perf_counter
    observer: Callable[[PointerSample], None] = lambda _: None

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s <= TIMEOUT_S_MAX:
            raise ValueError(f"timeout_s must be above 0 and at most {TIMEOUT_S_MAX}")
        if self.step_tokens < 1:
            raise ValueError(f"step_tokens must be above 0, not {self.step_tokens}")
        if self.buffer_layers is not None and self.buffer_layers < 1:
            raise ValueError(f"buffer_layers must be above 0, not {self.buffer_layers}")
        if self.way is Way.BOTH_ENDS and (self.compute is None or self.load is None):
            raise ValueError("a way from both ends needs the costs of computing and of loading")

    def span_chunks(self, state_format: StateFormat) -> int:
        """Chunks that a span has at most."""
        return state_format.span_chunks(span_bytes=self.span_bytes, span_tokens=self.span_tokens)

    def first_chunks(self, state_format: StateFormat) -> Callable[[int], int] | None:
        """How many of them the first span of a history has, where loading is limited."""
        if self.compute is None:
            return None
        return partial(first_span_chunks, span_chunks=self.span_chunks(state_format))
