"""The conversation that a request continues, and which cuts of it the cache has."""

from dataclasses import dataclass, field

from engine_adapters.conversation.history import dropped
from engine_adapters.runner.engine.conversing import Conversing
from kvstored_contract.keys import Cut


@dataclass(slots=True)
class CutTrack:
    """``cuts`` in order, of which the cache has the first ``made_count``.

    There are none without a ``conversation``.

    ``loaded_count`` of them were made when the restoration was over. Others may look at the list
    while cuts are added to it.
    """

    conversation: Conversing | None = None
    cuts: list[Cut] = field(default_factory=list)
    made_count: int = 0
    loaded_count: int = 0

    @property
    def next(self) -> Cut | None:
        """The next one to make."""
        return self.cuts[self.made_count] if self.made_count < len(self.cuts) else None

    @property
    def dropped_count(self) -> int:
        """Computed tokens that are not in the cache any more."""
        return dropped(self.cuts[: self.made_count])

    @property
    def skipped_count(self) -> int:
        """Of these, the ones that were neither loaded nor computed here."""
        return dropped(self.cuts[: self.loaded_count])

    def load(self, count: int) -> None:
        """The cache has what these first cuts have left."""
        self.made_count = self.loaded_count = count
