"""How much the benchmark measures."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """``turns`` of a conversation through each text, and how many records are asked for."""

    turns: int
    questions: int


FULL = Scale(turns=24, questions=300)
QUICK = Scale(turns=6, questions=60)
