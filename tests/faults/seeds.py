"""Seeds of randomised tests: printed, and accepted back."""

import os
import random

VARIABLE = "KVSTORED_SEED"


def seed() -> int:
    """The seed in ``KVSTORED_SEED``, or else a fresh one; printed so that a run can be repeated."""
    given = os.environ.get(VARIABLE)
    chosen = int(given) if given else random.SystemRandom().randrange(2**32)
    print(f"{VARIABLE}={chosen}")
    return chosen
