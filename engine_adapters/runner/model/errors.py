"""Errors that a caller of the runner can act on."""


class ModelError(ValueError):
    """A model directory that the runner cannot run; the message names the property at fault."""


class RequestError(ValueError):
    """A request that can never be served; the message names the limit that it exceeds."""


class PositionError(RequestError):
    """States that cannot be restored at other positions than those they were computed at."""


class StepError(RuntimeError):
    """A step could not be computed; every request that took part in it ends with this."""
