"""What the adapter counts. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

COUNTERS = {
    "hit_tokens_dram": "Prompt tokens restored from the daemon's DRAM",
    "hit_tokens_device": "Prompt tokens restored from storage devices",
    "restored_tokens": "Prompt tokens whose states were loaded and used",
    "projected_tokens": "Prompt tokens whose keys and values were projected from hidden states",
    "jumped_tokens": "Prompt tokens that a running prefill jumped over",
    "computed_tokens": "Tokens that were computed",
    "jumps": "Prefills that met their loads",
    "loads": "Loads that were started",
    "failed_loads": "Loads that brought less than what was found",
    "load_seconds": "Time from the order to the end of loads",
    "load_bytes": "Bytes that loads brought",
    "saved_tokens": "Tokens whose states were stored",
    "dropped_saves": "Chunks that were not saved because something was full or absent",
    "disconnected_absent": "Attempts to connect, about one a second, that reached no daemon",
    "disconnected_limit": "Attempts to connect that the daemon refused because of a limit of it",
    "disconnected_access": "Attempts to connect that the daemon refused to the engine's Unix user",
    "disconnected_other": "Attempts to connect that the daemon refused for any other reason",
    "unknown_requests": "Requests that bypass the store because of what is unknown about them",
}
"""Every counter, with what it means."""


@dataclass(slots=True)
class Tally:
    """Counts since the last ``take``. Not thread-safe."""

    counts: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, amount: float = 1) -> None:
        """Counts; raises KeyError for a name that is not in COUNTERS."""
        if name not in COUNTERS:
            raise KeyError(name)
        if amount:
            self.counts[name] = self.counts.get(name, 0) + amount

    def take(self) -> dict[str, float]:
        """Everything counted since the last call."""
        counts, self.counts = self.counts, {}
        return counts


def joined(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """The sums of both."""
    return {
        name: ours.get(name, 0) + theirs.get(name, 0)
        for name in COUNTERS
        if name in ours or name in theirs
    }
