"""Where processes that run vLLM live: their interpreter, environment and temporary files."""

import getpass
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

from engine_adapters.vllm.testing.errors import EngineError

ROOT = Path(__file__).parents[3]
ENGINE_DEFAULTS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",
}
"""Of an engine in one process that computes with one thread and compiles nothing."""


def interpreter() -> str:
    """A Python that has vLLM: this one, or that of ``make test-vllm``; raises EngineError."""
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    apart = ROOT / ".venv-vllm" / "bin" / "python"
    if not apart.exists():
        raise EngineError("vLLM is not installed; `make test-vllm` makes its environment")
    return str(apart)


def child_environment(folder: Path) -> dict[str, str]:
    """For a process that runs vLLM: our packages, and ``folder`` for what it leaves behind.

    vLLM keeps sockets among the temporary files, and does not remove all of them. What torch has
    compiled stays where the next process finds it.
    """
    compiled = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(compiled),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in (".", "client", "protos")),
        "TMPDIR": str(folder),
    }


def engine_environment(folder: Path) -> dict[str, str]:
    """``child_environment`` with ENGINE_DEFAULTS, where our own environment says nothing else."""
    return {**ENGINE_DEFAULTS, **child_environment(folder)}


def short_folder() -> Path:
    """A new folder whose path leaves room for the name of a socket; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="kvstored-"))
