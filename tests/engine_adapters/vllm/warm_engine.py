"""An engine that starts in a second or two: a copy of a process that has imported vLLM."""

import atexit
import os
from functools import cache
from pathlib import Path
from typing import Any

from engine_adapters.vllm.testing.child_environment import ENGINE_DEFAULTS, ROOT, interpreter
from engine_adapters.vllm.testing.engine_process import EngineProcess
from engine_adapters.vllm.testing.fork_server import ForkServer

POOL_BLOCKS = 1024
"""Of 32 tokens: more than any test has at once, and a tenth of what vLLM would take."""


class WarmEngine(EngineProcess):
    """``EngineProcess`` with a small pool. Nothing can be changed that imports of vLLM look at."""

    def __init__(self, model: Path, log: Path, **changes: Any) -> None:
        pool = {"num_gpu_blocks_override": POOL_BLOCKS}
        super().__init__(model, log, copies=_fork_server(), **(pool | changes))


def assert_pool_is_whole(engine: EngineProcess) -> None:
    """No block is held by a request that has ended."""
    blocks = engine.ask("blocks")
    assert blocks["free"] == blocks["all"]


@cache
def _fork_server() -> ForkServer:
    """One for all tests of this process."""
    packages = os.pathsep.join(str(ROOT / part) for part in (".", "client", "protos"))
    server = ForkServer(interpreter(), {**ENGINE_DEFAULTS, **os.environ, "PYTHONPATH": packages})
    atexit.register(server.close)
    return server
