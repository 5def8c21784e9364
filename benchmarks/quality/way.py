"""What can be done with a history whose window overflows (AttentionStore, section 4.3.7). Pure."""

from enum import Enum


class Way(Enum):
    """``AS`` cuts states that are stored unrotated, and rotates them at their new positions.

    ``TT`` cuts the tokens and computes those that are left again. ``NKVT`` cuts states whose
    positions are embedded, and goes on at the position after the last of those that are left.
    """

    AS = "as"
    TT = "tt"
    NKVT = "nkvt"
