"""Runs ``engine_child``, with the interpreter that has vLLM."""

import getpass
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

from benchmarks.benchmark import BenchmarkError

ROOT = Path(__file__).parents[2]
BLOCK_TOKENS = 32
ENGINE = {
    "dtype": "float32",
    "max_model_len": 2048,
    "max_num_batched_tokens": 256,
    "block_size": BLOCK_TOKENS,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "seed": 0,
    "disable_log_stats": False,
    "distributed_executor_backend": "uni",
}
_LOG_SHOWN = 4000


def interpreter() -> str:
    """A Python that has vLLM: this one, or that of ``make test-vllm``; raises BenchmarkError."""
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    apart = ROOT / ".venv-vllm" / "bin" / "python"
    if not apart.exists():
        raise BenchmarkError("vLLM is not installed; `make test-vllm` makes its environment")
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


def short_folder() -> Path:
    """A new folder whose path leaves room for the name of a socket; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="kvstored-"))


def transfer_config(socket: Path, **extra: Any) -> dict[str, Any]:
    """What a user names in ``--kv-transfer-config``."""
    return {
        "kv_connector": "KvstoredConnector",
        "kv_connector_module_path": "engine_adapters.vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"socket": str(socket), **extra},
    }


class EngineProcess:
    """One engine. As a context manager it starts, and ends as an engine should.

    ``changes`` are arguments of ``LLM`` besides those of ENGINE. Raises BenchmarkError with the
    end of the log when the engine ends by itself.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        *,
        module: str = "benchmarks.vllm.engine_child",
        **changes: Any,
    ) -> None:
        self._arguments = {"model": str(model), **ENGINE, **changes}
        self._log_path = log
        self._module = module
        self._process: subprocess.Popen[str] | None = None

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Has the engine do something and returns its answer."""
        self._write({"verb": verb, **arguments})
        return self._read()

    def generate(
        self, *prompts: list[int], max_tokens: int = 8, salt: str | None = None
    ) -> list[dict[str, Any]]:
        """Greedy continuations of all prompts at once."""
        answer: list[dict[str, Any]] = self.ask(
            "generate", prompts=prompts, max_tokens=max_tokens, salt=salt
        )
        return answer

    def tokens(self, *prompts: list[int], max_tokens: int = 8) -> list[list[int]]:
        """The tokens of ``generate`` alone."""
        return [answer["tokens"] for answer in self.generate(*prompts, max_tokens=max_tokens)]

    def begin_decoding(self, *prompts: list[int], max_tokens: int) -> None:
        """Computes all prompts at once, up to a first token of each."""
        self.ask("begin_decoding", prompts=prompts, max_tokens=max_tokens)

    def decode_s(self, step_count: int) -> float:
        """Seconds of so many further steps of what was begun."""
        duration_s: float = self.ask("decode_s", step_count=step_count)
        return duration_s

    def end_decoding(self) -> None:
        """The rest of what was begun; raises BenchmarkError where some prompt had ended before."""
        self.ask("end_decoding")

    def pause(self) -> None:
        """Stops the process: an engine that waits wakes up a thousand times in a second."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undoes ``pause``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def counted(self, name: str) -> float:
        """One of the connector's own counters."""
        metrics: dict[str, float] = self.ask("metrics")
        return metrics.get(f"vllm:kvstored_{name}", 0.0)

    def __enter__(self) -> Self:
        python, self._folder = interpreter(), short_folder()
        with self._log_path.open("a") as log:
            self._process = subprocess.Popen(
                [python, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=child_environment(self._folder),
            )
        try:
            self._write(self._arguments)
            self._read()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self.resume()
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._kill()

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        rmtree(self._folder, ignore_errors=True)

    def _write(self, document: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()

    def _read(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            log = self._log_path.read_text(errors="replace")[-_LOG_SHOWN:]
            raise BenchmarkError(f"the engine ended; its log ends with:\n{log}")
        return json.loads(line)
