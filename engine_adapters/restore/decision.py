"""What an engine does next for a request that is being restored."""

from dataclasses import dataclass
from enum import Enum

from engine_adapters.restore.ranges import TokenRange


class Action(Enum):
    """What the engine does next for the request."""

    COMPUTE = "compute"
    """Compute these tokens in the next step."""
    JUMP = "jump"
    """Use the loaded states of these tokens."""
    WAIT = "wait"
    """Nothing: what is missing will be loaded sooner than it could be computed."""
    DONE = "done"
    """All tokens of the prompt are computed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An action and its tokens, none to wait and when all is done."""

    action: Action
    tokens: TokenRange
