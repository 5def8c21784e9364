"""The fixtures of the runner: its model makes the states that are read."""

from tests.engine_adapters.runner.conftest import (
    _no_profiles,
    _one_thread,
    directory,
    make_tokens,
    model,
)

__all__ = ["_no_profiles", "_one_thread", "directory", "make_tokens", "model"]
