"""What goes wrong with engines of tests and benchmarks."""


class EngineError(RuntimeError):
    """An engine or a server does not start, or ended by itself; what it said last."""
