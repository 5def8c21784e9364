"""A vLLM engine in a process of its own, which obeys lines of JSON.

The first line has the arguments of ``LLM``; each further one a verb, which is answered by one
line. Whatever vLLM prints goes to the standard error. Run by ``engine_process``, with an
interpreter that has vLLM.
"""

import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.005
PATIENCE_S = 120.0


class EngineChild:
    """The engine and its verbs."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        from vllm import LLM
        from vllm.config import KVEventsConfig, KVTransferConfig

        for name, kind in (
            ("kv_transfer_config", KVTransferConfig),
            ("kv_events_config", KVEventsConfig),
        ):
            if (fields := arguments.pop(name, None)) is not None:
                arguments[name] = kind(**fields)
        self.llm = LLM(**arguments)

    def generate(
        self,
        prompts: list[list[int]],
        max_tokens: int,
        salt: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """All prompts at once, greedily; ``extra`` are arguments that connectors look at."""
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, extra_args=extra
        )
        inputs: list[dict[str, Any]] = [{"prompt_token_ids": prompt} for prompt in prompts]
        if salt is not None:
            inputs = [{**one, "cache_salt": salt} for one in inputs]
        return self.answers(inputs, sampling)

    def answers(self, inputs: list[Any], sampling: Any, **options: Any) -> list[dict[str, Any]]:
        """What the engine makes of all inputs at once; ``options`` are those of ``generate``."""
        started_s = time.perf_counter()
        outputs = self.llm.generate(inputs, sampling, use_tqdm=False, **options)
        duration_s = time.perf_counter() - started_s
        return [
            {
                "tokens": list(output.outputs[0].token_ids),
                "cached": output.num_cached_tokens,
                "ttft_s": output.metrics.first_token_latency if output.metrics else None,
                "duration_s": duration_s,
            }
            for output in outputs
        ]

    def bind(self) -> bool:
        """Keeps the computing thread on one core, as vLLM does in processes of its workers."""
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        return True

    def begin_decoding(self, prompts: list[list[int]], max_tokens: int) -> None:
        """Takes steps until one has given each prompt a token."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        for number, prompt in enumerate(prompts):
            self.llm.llm_engine.add_request(str(number), {"prompt_token_ids": prompt}, sampling)
        self._decoded_count = len(prompts)
        while len(self.llm.llm_engine.step()) < len(prompts):
            self._check_decoded()

    def decode_s(self, step_count: int) -> float:
        """Seconds that so many further steps take."""
        started_s = time.perf_counter()
        for _ in range(step_count):
            self.llm.llm_engine.step()
        return time.perf_counter() - started_s

    def end_decoding(self) -> None:
        """Takes steps until nothing is left to compute, of any prompt."""
        self._check_decoded()
        while self.llm.llm_engine.has_unfinished_requests():
            self.llm.llm_engine.step()

    def _check_decoded(self) -> None:
        """Steps with fewer requests than others would be shorter."""
        if self.llm.llm_engine.get_num_unfinished_requests() < self._decoded_count:
            raise RuntimeError("requests ended before all of their steps were measured")

    def metrics(self) -> dict[str, float]:
        """Every counter and gauge, summed over labels."""
        sums: dict[str, float] = {}
        for metric in self.llm.get_metrics():
            if (value := getattr(metric, "value", None)) is not None:
                sums[metric.name] = sums.get(metric.name, 0) + value
        return sums

    def blocks(self) -> dict[str, int]:
        """Blocks of the pool, free and in all, without the one that stands for none."""
        pool = self.scheduler.kv_cache_manager.block_pool
        return {"free": pool.get_num_free_blocks(), "all": pool.num_gpu_blocks - 1}

    def settle(self) -> bool:
        """Waits until everything that was taken is put; False when that takes too long."""
        return _until(lambda: not self.worker_side.is_saving)

    def reconnect(self) -> bool:
        """Waits until both sides have found the daemon; False when that takes too long.

        Of every rank: until then an engine saves nothing and finds nothing.
        """
        lookup = self.scheduler.connector.scheduler_side.lookup
        return _until(lambda: lookup.is_connected and all(self.llm.collective_rpc(_is_connected)))

    @property
    def scheduler(self) -> Any:
        """VLLM's scheduler, which is in this process."""
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    @property
    def worker_side(self) -> Any:
        """The connector's side in the worker, which is in this process."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        return get_kv_transfer_group().worker_side


def _is_connected(worker: Any) -> bool:
    """In the process of a rank: whether its side of the connector has a session."""
    del worker
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return bool(get_kv_transfer_group().worker_side.is_connected)


def _until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def obey(child_class: type[EngineChild]) -> None:
    """Obeys until the input ends. SIGUSR1 has it print where its threads are."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    child = child_class(json.loads(sys.stdin.readline()))
    answer(True)
    for line in sys.stdin:
        verb = json.loads(line)
        answer(getattr(child, verb.pop("verb"))(**verb))
    child.llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    obey(EngineChild)
