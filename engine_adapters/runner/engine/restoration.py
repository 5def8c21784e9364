"""What the engine and a restoration that is on its way say to each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache

PIECE_TOKENS = 1024
"""Tokens that all restorations together take into the cache between two steps, more or less, so
that requests that decode are not held up by histories that arrived all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLayers:
    """The cache holds the first ``layers`` layers of the tokens before ``stop_token``.

    Tokens from there on may be computed in these layers, while later ones come. Beside others'
    work that should begin when ``buffer_layers`` are there, because then it need not rest again
    (AttentionStore, section 3.2.1). ``stop_token`` is a number among all tokens that there were, of
    which cuts have dropped ``dropped_count``.
    """

    stop_token: int
    layers: int
    dropped_count: int = 0
    buffer_layers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorationState:
    """How far a restoration is.

    ``position`` counts leading tokens whose states are in the cache, computed or restored. When
    it ``is_over`` nothing more will be restored: what is left is an ordinary prefill. It
    ``is_loading`` while stored states are on their way, so that it gets on without being
    computed, and ``is_waiting`` where the last ``advance`` found nothing to do. ``open_layers``
    is None where nothing can be computed before all layers are there.
    """

    position: int
    is_over: bool
    is_loading: bool
    is_waiting: bool
    open_layers: OpenLayers | None = None


class Restoration(Protocol):
    """One history on its way into the cache, while the engine does other things.

    In every step the engine calls ``advance``, then ``begin_step`` and ``end_step`` around
    the forward pass if tokens of the request are in it. No call waits for the store but
    ``wait``. The engine's thread only. Nothing is raised because of the store.
    """

    @property
    def state(self) -> RestorationState:
        """How far it is now."""

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """Takes of what has arrived about ``piece_tokens`` into the cache, at least one piece.

        A layer of a token counts as so much less of a token. Returns how many tokens behind
        ``position`` the next step should compute, which may
        have ``token_budget`` of them; 0 to wait for the store, or when it is over.
        """

    def begin_step(self, token_count: int) -> int:
        """A step computes the next ``token_count`` tokens, at most as many as were asked for.

        Returns the first token of the first chunk after ``position`` that is not stored.
        """

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """The step is over; it took so long with all its ``step_tokens``, others' included."""

    def wait(self, timeout_s: float) -> None:
        """Blocks until ``advance`` may find something new, or the time is up."""

    def close(self) -> RestoreReport:
        """Gives everything back; never waits. What was restored: nothing is called afterwards."""


class Restorer(Protocol):
    """Brings the states of histories into the cache."""

    def begin(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> Restoration | None:
        """Begins to fill the slots of tokens, never the last one; returns at once.

        None where nothing can be stored of them.
        """
