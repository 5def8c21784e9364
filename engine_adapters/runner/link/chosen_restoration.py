"""Loads entries, computes what was lost of them, and chooses which tokens are computed again."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Protocol

from engine_adapters.link.plan import LinkPlan, with_computed
from engine_adapters.link.rows import RowGroup
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.link.entry_restoration import EntryRestoration
from engine_adapters.runner.link.missing_states import MissingStates


class Chooser(Protocol):
    """Chooses tokens of entries by what is in the cache."""

    def choose(self) -> Generator[int, None, list[int]]:
        """Yields tokens times layers that were computed, and returns the positions chosen.

        Whatever it writes to the cache is written again when the prompt is computed.
        """


class ChosenRestoration:
    """As ``Restoration``; loads entries, and then computes what is needed to choose tokens.

    What was lost is computed before that, because it is looked at as well. Entries with a sink are
    completed without a ``chooser``, too. The engine's thread only.
    """

    def __init__(
        self,
        entries: EntryRestoration,
        missing: MissingStates,
        plan: LinkPlan,
        sinks: Mapping[str, Sequence[int]],
        chooser: Chooser | None,
    ) -> None:
        """``sinks`` has the token ids of the sink of each entry with one, by its id."""
        self._entries = entries
        self._missing = missing
        self._plan = plan
        self._sinks = sinks
        self._chooser = chooser
        self._computed_layer_tokens = 0
        self._filled: frozenset[int] = frozenset()
        self._is_over = False
        self._groups: tuple[RowGroup, ...] = ()
        self._work = self._run()

    @property
    def groups(self) -> tuple[RowGroup, ...]:
        """What there is to compute by what is in the cache, once it is over."""
        return self._groups

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``; ``position`` stays 0."""
        loading = self._entries.state
        return RestorationState(
            position=0,
            is_over=self._is_over,
            is_loading=loading.is_loading,
            is_waiting=loading.is_waiting,
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration``; asks for no tokens, but computes layers itself."""
        if not self._entries.state.is_over:
            self._entries.advance(token_budget, piece_tokens=piece_tokens)
            return 0
        room = piece_tokens * self._missing.layer_count
        while room > 0 and not self._is_over:
            layer_tokens = next(self._work, None)
            self._is_over = layer_tokens is None
            self._computed_layer_tokens += layer_tokens or 0
            room -= layer_tokens or 0
        return 0

    def begin_step(self, token_count: int) -> int:
        """As ``Restoration``; nothing of a linked prompt is saved."""
        del token_count
        return 0

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``."""

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``."""
        self._entries.wait(timeout_s)

    def close(self) -> RestoreReport:
        """As ``Restoration``; counts what was computed to choose, and in place of what was lost."""
        self._entries.close()
        return self._entries.report_of(
            self._groups if self._is_over else self._entries.rows.all_groups,
            recomputed_layer_tokens=self._computed_layer_tokens,
            filled=self._filled,
        )

    def _run(self) -> Iterator[int]:
        """Yields tokens times layers that were computed."""
        missing = self._entries.rows.missing_counts
        self._filled = frozenset(
            position
            for number, count in missing.items()
            for position in self._plan.entries[number].positions[:count]
        )
        yield from self._missing.after_sinks(missing, self._sinks)
        if self._chooser is None:
            self._groups = self._entries.groups
            return
        *lost, _ = self._entries.groups
        yield from self._missing.in_place(lost)
        chosen = yield from self._chooser.choose()
        self._groups = (RowGroup(0, with_computed(self._plan, chosen).computed),)
