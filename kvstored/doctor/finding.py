"""What was found about one thing. Pure values."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"
    """The daemon serves, but slower, or with less safety, than it could."""
    WRONG = "wrong"
    """The daemon does not start, or a promise of it does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``remedy`` is empty where nothing needs to be done."""

    subject: str
    verdict: Verdict
    says: str
    remedy: str = ""


def good(subject: str, says: str) -> Finding:
    """A thing that is as it should be."""
    return Finding(subject=subject, verdict=Verdict.GOOD, says=says)


def note(subject: str, says: str, remedy: str) -> Finding:
    """A thing that could be better."""
    return Finding(subject=subject, verdict=Verdict.NOTE, says=says, remedy=remedy)


def wrong(subject: str, says: str, remedy: str) -> Finding:
    """A thing that must be mended."""
    return Finding(subject=subject, verdict=Verdict.WRONG, says=says, remedy=remedy)
