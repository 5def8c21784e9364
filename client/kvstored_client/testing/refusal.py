"""How a store in memory does not serve a call."""

from typing import NoReturn

from kvstored_contract.reasons import Reason


class UnservedError(Exception):
    """A call that is not served; the message is one sentence for the caller."""


class RefusedError(UnservedError):
    """The store refused the call and touches the arena no more on its behalf."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SilentError(UnservedError):
    """The call failed without a reason."""


class GoneError(UnservedError):
    """The store, or the session, ended while the call was in progress."""


def refuse(reason: Reason, message: str) -> NoReturn:
    """Raises RefusedError."""
    raise RefusedError(reason, message)
