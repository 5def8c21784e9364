"""Errors that end a command with one sentence instead of a traceback."""

from kvstored.config import ConfigError
from kvstored.io.device import DeviceError
from kvstored.io.open_engine import EngineUnavailableError
from kvstored.server.listen import ListenError
from kvstored.store.index.index import IndexFailure
from kvstored.store.space.device_set import DeviceSetError
from kvstored.store.start.recover import RecoverError


class CommandError(Exception):
    """A command cannot do what it was asked to; one sentence names the thing and the remedy."""


EXPECTED_ERRORS = (
    CommandError,
    ConfigError,
    DeviceError,
    DeviceSetError,
    EngineUnavailableError,
    IndexFailure,
    ListenError,
    RecoverError,
)
EXIT_FAILED = 1
"""The command ran and found something wrong."""
EXIT_REFUSED = 2
"""The command could not run."""
