"""Runs ``engine_child``, with the interpreter that has vLLM."""

import json
import select
import signal
import subprocess
import time
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

from engine_adapters.vllm.testing.child_environment import (
    engine_environment,
    interpreter,
    short_folder,
)
from engine_adapters.vllm.testing.engine_arguments import ENGINE
from engine_adapters.vllm.testing.errors import EngineError
from engine_adapters.vllm.testing.fork_server import ForkedProcess, ForkServer

_LOG_SHOWN = 4000
_STACKS_SHOWN = 20_000
ANSWER_S = 240.0
"""Longest that an engine takes for its start or a verb."""
STACKS_S = 1.0
"""In which an engine that does not answer says where its threads are."""


class EngineProcess:
    """One engine. As a context manager it starts, and ends as an engine should.

    ``changes`` are arguments of ``LLM`` besides those of ENGINE. With ``copies`` it begins as a
    copy of that server's process, which has imported vLLM under ENGINE_DEFAULTS. Raises
    EngineError with the end of the log when the engine ends by itself, and with where its threads
    are when it does not answer for ``answer_s``.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        *,
        module: str = "engine_adapters.vllm.testing.engine_child",
        copies: ForkServer | None = None,
        answer_s: float = ANSWER_S,
        **changes: Any,
    ) -> None:
        self._arguments = {"model": str(model), **ENGINE, **changes}
        self._log_path = log
        self._module = module
        self._copies = copies
        self._answer_s = answer_s
        self._process: subprocess.Popen[str] | ForkedProcess | None = None

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Has the engine do something and returns its answer."""
        self._write({"verb": verb, **arguments})
        return self._read()

    def generate(
        self,
        *prompts: list[int],
        max_tokens: int = 8,
        salt: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Greedy continuations of all prompts at once, with ``extra_args`` of vLLM."""
        answer: list[dict[str, Any]] = self.ask(
            "generate", prompts=prompts, max_tokens=max_tokens, salt=salt, extra=extra
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
        """The rest of what was begun; raises EngineError where some prompt had ended before."""
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
        self._folder = short_folder()
        environment = engine_environment(self._folder)
        with self._log_path.open("a") as log:
            if self._copies is not None:
                self._process = self._copies.start(self._module, log, environment)
            else:
                self._process = subprocess.Popen(
                    [interpreter(), "-m", self._module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=environment,
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
        if isinstance(self._process, ForkedProcess):
            self._process.close()
        rmtree(self._folder, ignore_errors=True)

    def _write(self, document: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()

    def _read(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        # An answer is one line, so that nothing of it was read before.
        if not select.select([self._process.stdout], [], [], self._answer_s)[0]:
            self._process.send_signal(signal.SIGUSR1)
            # The engine writes them without Python, so that nothing says when it has.
            time.sleep(STACKS_S)
            # It would not obey the end of its input either.
            self._process.kill()
            raise EngineError(
                f"the engine did not answer for {self._answer_s:g} s; its log ends with:\n"
                f"{self._log_end(_STACKS_SHOWN)}"
            )
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"the engine ended; its log ends with:\n{self._log_end(_LOG_SHOWN)}")
        return json.loads(line)

    def _log_end(self, length: int) -> str:
        return self._log_path.read_text(errors="replace")[-length:]
