"""``python -m engine_adapters.vllm.testing.imports`` imports what every engine does, and ends.

After a new installation Python compiles it then, once, and not in each of the processes that
tests start at the same time.
"""

from importlib import import_module

from engine_adapters.vllm.testing.fork_server import ENGINE_MODULES

if __name__ == "__main__":
    for name in ENGINE_MODULES:
        import_module(name)
