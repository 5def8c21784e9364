"""What one step of training looks at."""

from dataclasses import dataclass

from torch import Tensor

IGNORED = -100
"""A target that counts nowhere, as torch's cross entropy has it."""
TEXT = 0
"""The kind of targets that only go on with a text; answers are of kinds from 1."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``inputs``, ``targets`` and ``kinds`` [sequences, positions], int64.

    A target is the token that follows, or IGNORED where chance decides what follows. ``kinds`` is
    TEXT, or says which kind of answer a target is.
    """

    inputs: Tensor
    targets: Tensor
    kinds: Tensor
