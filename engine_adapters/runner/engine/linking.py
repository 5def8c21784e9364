"""What the engine asks of a linked prompt, and how far it is."""

from dataclasses import dataclass, field
from typing import Protocol

from engine_adapters.link.rows import RowGroup, split_groups
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.model.kv_cache import KvCache


class Linking(Protocol):
    """A prompt of which entries are stored (EPIC). The engine's thread only; nothing waits."""

    @property
    def groups(self) -> tuple[RowGroup, ...]:
        """What there is to compute by what is in the cache.

        While its restoration goes on there may be more each time, after what there was before; in
        the end the last token of the prompt is among it.
        """

    def hold(self) -> None:
        """It was added: soon what is stored of its entries is kept, until ``end``."""

    def begin(self, *, cache: KvCache, first_slot: int) -> Restoration | None:
        """Begins to load entries, each to its place; None where there is nothing to load.

        The ``position`` of its state stays 0. What it asks for are the next tokens of ``groups``.
        """

    def end(self) -> None:
        """The request has its last token, failed, or is not wanted any more."""


@dataclass(slots=True)
class LinkTrack:
    """The ``groups`` that may be computed now; ``computed_count`` tokens of all were."""

    linking: Linking
    groups: tuple[RowGroup, ...] = field(init=False)
    computed_count: int = 0

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Learns what there is to compute."""
        _, self.groups = split_groups(self.linking.groups, self.computed_count)

    def advance(self, token_count: int) -> None:
        """So many tokens of the groups were computed."""
        _, self.groups = split_groups(self.groups, token_count)
        self.computed_count += token_count
