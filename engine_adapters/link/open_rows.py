"""What of a linked prompt can be computed by what has come of its entries. Pure."""

from engine_adapters.link.plan import LinkPlan
from engine_adapters.link.rows import RowGroup, loaded_chunks, missing_counts, row_groups


class OpenRows:
    """Tokens that can be computed: those at positions to which nothing is loaded any more.

    They become more stretch by stretch, from the front of the prompt on. Not thread-safe.
    """

    def __init__(self, plan: LinkPlan, *, chunk_tokens: int, early_tokens: int | None) -> None:
        """While entries come at least ``early_tokens`` are opened at once; None: none."""
        self._plan = plan
        self._chunk_tokens = chunk_tokens
        self._early_tokens = early_tokens
        self._loaded: list[set[int]] = [set() for _ in plan.entries]
        self._stop = 0
        self._taken_tokens = 0
        self.groups: tuple[RowGroup, ...] = ()
        """Those that were opened; more come after them."""

    @property
    def all_groups(self) -> tuple[RowGroup, ...]:
        """What there is to compute if nothing more comes."""
        return (*self.groups, *self._up_to(self._plan.token_count))

    @property
    def missing_counts(self) -> dict[int, int]:
        """What has not come of entries with a sink, as the function of that name says."""
        loaded = [frozenset(chunks) for chunks in self._loaded]
        return missing_counts(self._plan, loaded, chunk_tokens=self._chunk_tokens)

    @property
    def ready_tokens(self) -> int:
        """How many of those that were opened nobody has taken."""
        return sum(group.token_count for group in self.groups) - self._taken_tokens

    def add(self, entry: int, chunk: int) -> None:
        """A chunk has come of an entry, both by their numbers."""
        self._loaded[entry].add(chunk)

    def first_wanted(self) -> int:
        """Position of the first entry that has chunks which are worth loading."""
        wanted = (
            entry.first_position
            for entry in self._plan.entries
            if loaded_chunks(self._plan, entry, self._chunk_tokens)
        )
        return next(wanted, self._plan.token_count)

    def open_early(self, entry: int | None) -> bool:
        """Nothing more comes of what is before this entry; whether that opens any tokens.

        By its number; None for the first one that is worth loading.
        """
        if self._early_tokens is None:
            return False
        stop = self.first_wanted() if entry is None else self._plan.entries[entry].first_position
        if sum(group.token_count for group in self._up_to(stop)) < self._early_tokens:
            return False
        self._open(stop)
        return True

    def open_all(self) -> None:
        """Nothing more comes."""
        self._open(self._plan.token_count)

    def take(self, token_count: int) -> None:
        """So many more are computed now."""
        self._taken_tokens += token_count

    def _open(self, stop: int) -> None:
        self.groups = (*self.groups, *self._up_to(stop))
        self._stop = max(self._stop, stop)

    def _up_to(self, stop: int) -> tuple[RowGroup, ...]:
        """What there is to compute from where it was opened up to."""
        return row_groups(
            self._plan,
            [frozenset(chunks) for chunks in self._loaded],
            chunk_tokens=self._chunk_tokens,
            positions=range(self._stop, stop),
        )
