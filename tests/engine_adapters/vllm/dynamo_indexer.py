"""Dynamo's real indexer of KV events, in a process of its own: what a router asks."""

import importlib.util
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from engine_adapters.vllm.testing.ports import free_port
from tests.support.waiting import wait_until

MODEL = "m"
HAS_DYNAMO = bool(importlib.util.find_spec("dynamo") and importlib.util.find_spec("dynamo._core"))
PROGRAM = "import sys; from dynamo._core import run_kv_indexer; run_kv_indexer(sys.argv[1:])"
ANSWER_S = 10.0


class DynamoIndexer:
    """Listens to workers that are registered, and knows what each has of a prompt."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._port = free_port()

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "--port", str(self._port), "--threads", "1"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def register(self, worker: int, *, port: int, block_tokens: int) -> None:
        """Listens to a worker's events from now on."""
        body = {
            "instance_id": worker,
            "endpoint": f"tcp://127.0.0.1:{port}",
            "model_name": MODEL,
            "block_size": block_tokens,
        }
        self._ask("POST", "/register", body)

    def matches(self, worker: int, token_ids: Sequence[int]) -> dict[str, int]:
        """Tokens of the longest prefix that a worker has: on its "gpu", on its "disk"."""
        body = {"token_ids": list(token_ids), "model_name": MODEL}
        answer = json.loads(self._ask("POST", "/query", body))
        return answer["instances"].get(str(worker), {})

    def _answers(self) -> bool:
        try:
            self._ask("GET", "/workers")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            text: str = answer.read().decode()
            return text
