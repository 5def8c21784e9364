"""vLLM's OpenAI server as a process, and a client of it."""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

from engine_adapters.vllm.testing.agreement import Reply
from engine_adapters.vllm.testing.child_environment import (
    child_environment,
    interpreter,
    short_folder,
)
from engine_adapters.vllm.testing.engine_arguments import BLOCK_TOKENS
from engine_adapters.vllm.testing.errors import EngineError
from engine_adapters.vllm.testing.ports import free_port

START_S = 200.0
STOP_S = 60.0
REQUEST_S = 150.0
HEALTH_S = 10.0
POLL_S = 0.25
STACKS_S = 1.0
"""In which the processes of a server that does not answer say where their threads are."""
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
"""Turns one after the other: the tiny models know no roles."""
SERVER_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    # A process that SIGABRT ends writes its stacks first.
    "PYTHONFAULTHANDLER": "1",
}
_LOG_SHOWN = 4000
_STACKS_SHOWN = 40_000


class ServerProcess:
    """One server. As a context manager it starts, is ready, and ends by SIGTERM.

    ``chat`` and ``counter`` may be called from any thread. Raises EngineError with the end of the
    log when it does not start, and ends it with its stacks when it does not answer for
    ``REQUEST_S``.
    """

    def __init__(
        self, model: Path, log: Path, *arguments: str, transfer: dict[str, Any] | None = None
    ) -> None:
        self._log_path = log
        self._port = free_port()
        given = [] if transfer is None else ["--kv-transfer-config", json.dumps(transfer)]
        self._command = [
            *(interpreter(), "-m", "vllm.entrypoints.openai.api_server"),
            # The server has a working directory of its own.
            *("--model", str(model.resolve()), "--served-model-name", "model"),
            *("--host", "127.0.0.1", "--port", str(self._port)),
            *("--dtype", "float32", "--block-size", str(BLOCK_TOKENS)),
            *("--max-model-len", "4096", "--max-num-batched-tokens", "256"),
            *("--enforce-eager", "--no-enable-prefix-caching", "--enable-prompt-tokens-details"),
            *("--chat-template", CHAT_TEMPLATE),
            *given,
            *arguments,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._silence: EngineError | None = None
        """What all clients hear of a server that did not answer one of them."""

    def chat(self, messages: list[dict[str, str]], *, max_tokens: int) -> Reply:
        """The greedy answer to a conversation."""
        answer = self._post(
            "/v1/chat/completions",
            {
                "model": "model",
                "messages": messages,
                "temperature": 0,
                "max_tokens": max_tokens,
                "ignore_eos": True,
                "logprobs": True,
                "top_logprobs": 2,
            },
        )
        choice, usage = answer["choices"][0], answer["usage"]
        said = choice["logprobs"]["content"]
        details = usage.get("prompt_tokens_details") or {}
        return Reply(
            text=choice["message"]["content"],
            tokens=tuple(one["token"] for one in said),
            seconds=tuple(_second(one)["token"] for one in said),
            margins=tuple(one["logprob"] - _second(one)["logprob"] for one in said),
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=details.get("cached_tokens") or 0,
        )

    def warm_up(self) -> None:
        """Has compiled what the first answer with log-probabilities needs: it takes seconds."""
        self.chat([{"role": "user", "content": "w4"}], max_tokens=2)

    def counter(self, name: str) -> float:
        """A counter of the server's metrics, summed over its labels; 0 when there is none."""
        lines = self._answer(urllib.request.Request(self._address("/metrics"))).splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith((f"{name}_total{{", f"{name}_total "))
        )

    def __enter__(self) -> Self:
        self._folder = short_folder()
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**child_environment(self._folder), **SERVER_ENVIRONMENT},
                cwd=self._log_path.parent,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_S
        while not self._is_healthy():
            has_ended = self._process.poll() is not None
            if has_ended or time.monotonic() > deadline_s:
                log = self._log_end(_LOG_SHOWN) if has_ended else self._stacks()
                raise EngineError(f"the server does not start; its log ends with:\n{log}")
            time.sleep(POLL_S)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self._address("/health"), timeout=HEALTH_S) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        # The engine and what removes its shared memory are processes of the server's own: they
        # end after it, and would outlive one that is killed.
        with suppress(ProcessLookupError):
            deadline_s = time.monotonic() + STOP_S
            while time.monotonic() < deadline_s:
                os.killpg(self._process.pid, 0)
                time.sleep(POLL_S)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        rmtree(self._folder, ignore_errors=True)

    def _address(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    def _post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self._address(path),
            data=json.dumps(document).encode(),
            headers={"Content-Type": "application/json"},
        )
        answer: dict[str, Any] = json.loads(self._answer(request))
        return answer

    def _answer(self, request: urllib.request.Request) -> str:
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
                text: str = reply.read().decode()
        except OSError as error:
            silence = self._silence_after(error)
            if silence is None:
                raise
            raise silence from error
        return text

    def _silence_after(self, error: OSError) -> EngineError | None:
        """That the server did not answer, also for those whose connections end with it."""
        with self._lock:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if self._silence is None and isinstance(reason, TimeoutError):
                self._silence = EngineError(
                    f"the server did not answer for {REQUEST_S:g} s; its log ends with:\n"
                    f"{self._stacks()}"
                )
            return self._silence

    def _stacks(self) -> str:
        """The end of the log, once all processes of the server have written where they are."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGABRT)
        time.sleep(STACKS_S)
        return self._log_end(_STACKS_SHOWN)

    def _log_end(self, length: int) -> str:
        return self._log_path.read_text(errors="replace")[-length:]


def _second(token: dict[str, Any]) -> dict[str, Any]:
    """The best of the tokens that were not chosen."""
    others = (one for one in token["top_logprobs"] if one["token"] != token["token"])
    best: dict[str, Any] = max(others, key=lambda one: one["logprob"])
    return best
