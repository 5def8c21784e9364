"""Lists of exceptions that may only shrink: more than a list has fails, and so does a name in it
that needs it no longer.
"""

import warnings
from collections.abc import Mapping


def faults(found: Mapping[str, int], allowed: Mapping[str, int], *, limit: int = 0) -> list[str]:
    """What is wrong with some counts, a sentence each.

    ``found`` are the counts of today, ``allowed`` those of the exceptions; a name in neither has
    at most ``limit``. A count that fell is a warning: the next change to the list
    lowers it.
    """
    for name, most in sorted(allowed.items()):
        if limit < found.get(name, 0) < most:
            warnings.warn(f"{name}: lower {most} to {found[name]} in the list", stacklevel=2)
    over = [
        f"{name} has {count}: at most {max(limit, allowed.get(name, limit))}"
        for name, count in sorted(found.items())
        if count > max(limit, allowed.get(name, limit))
    ]
    needless = [
        f"{name} has {found.get(name, 0)}: take it from the list, {limit} is what all have"
        for name in sorted(allowed)
        if found.get(name, 0) <= limit
    ]
    return over + needless


def strays(found: set[str], allowed: set[str]) -> list[str]:
    """What breaks a rule without being listed, and what is listed and breaks it no longer."""
    return [f"{name} breaks the rule" for name in sorted(found - allowed)] + [
        f"{name} keeps the rule: take it from the list" for name in sorted(allowed - found)
    ]
