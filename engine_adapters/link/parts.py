"""What a linked prompt is made of. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EntryPart:
    """An entry by its id; its ``token_count`` tokens have states of their own. May be empty.

    These were computed after ``sink_count`` tokens that are no part of the prompt.
    """

    entry_id: str
    token_count: int
    sink_count: int = 0


@dataclass(frozen=True, slots=True)
class NewPart:
    """Tokens that have no states yet. May be empty."""

    token_count: int


Part = EntryPart | NewPart
