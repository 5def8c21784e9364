"""The seed of a run of tests: all that chance chooses in it comes from this one number.

It is that of ``KVSTORED_SEED``, or else a fresh one, drawn once by the process that pytest starts
in; its workers inherit it. A test that fails after it asked for the seed says so in its report,
and so does every test of Hypothesis: ``KVSTORED_SEED=... python -m pytest TEST`` repeats it.
"""

import os
import random
import sys

VARIABLE = "KVSTORED_SEED"


class SeedUse:
    """Whether the test under way has asked for the seed."""

    def __init__(self) -> None:
        self.is_asked = False


USE = SeedUse()


def drawn() -> int:
    """The seed of this run; the first call draws it where none was given."""
    text = os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(2**32)))
    return int(text)


def seed() -> int:
    """The same for a test, whose report names it then; raises ValueError for one that is none."""
    USE.is_asked = True
    return drawn()


def of_command(given: int | None) -> int:
    """The seed that a command was given, or that of the run; prints it."""
    chosen = drawn() if given is None else given
    sys.stdout.write(f"{VARIABLE}={chosen}\n")
    return chosen
