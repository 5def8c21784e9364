"""The fixtures of the runner, whose models are restored."""

from tests.engine_adapters.runner.conftest import (
    _no_profiles,
    _one_thread,
    directory,
    make_tokens,
    model,
)

__all__ = ["_no_profiles", "_one_thread", "directory", "make_tokens", "model"]
