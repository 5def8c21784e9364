"""An engine for tests, with verbs that break things. Run by ``EngineProcess``."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from engine_adapters.vllm.testing.engine_child import POLL_S, EngineChild, obey

HELD_S = 20.0
"""Longest that a step waits for what a test wants to see; nothing of it is timed."""


class BreakableChild(EngineChild):
    """The verbs of tests."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        if arguments.pop("stages_inputs", False):
            # As on a GPU.
            from engine_adapters.vllm import worker

            worker.STAGES_INPUTS = True
        if arguments.pop("forks_ranks", False):
            # Importing vLLM again takes a rank longer than its test.
            from vllm.v1.executor import multiproc_executor

            multiproc_executor.get_mp_context = partial(multiprocessing.get_context, "fork")
        super().__init__(arguments)
        self._reached = threading.Event()
        self._regions: list[Any] = []

    def ranks(self) -> list[int]:
        """The processes of tensor-parallel ranks."""
        return [child.pid for child in multiprocessing.active_children() if child.pid]

    def adapted(
        self, prompt: list[int], max_tokens: int, folder: str, number: int
    ) -> dict[str, Any]:
        """A greedy continuation with a LoRA adapter."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        adapter = LoRARequest(f"adapter {number}", number, folder)
        (answer,) = self.answers([{"prompt_token_ids": prompt}], sampling, lora_request=adapter)
        return answer

    def linked(
        self,
        prompt: list[int],
        max_tokens: int,
        entries: list[list[int]],
        link: str,
        salt: str | None = None,
    ) -> dict[str, Any]:
        """A greedy answer to a prompt of linked entries, with log-probabilities of its first token.

        ``[token, log-probability]`` of the eight likeliest.
        """
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0,
            max_tokens=max_tokens,
            ignore_eos=True,
            logprobs=8,
            extra_args={"kv_transfer_params": {"entries": entries, "link": link}},
        )
        request: dict[str, Any] = {"prompt_token_ids": prompt}
        if salt is not None:
            request["cache_salt"] = salt
        (output,) = self.llm.generate([request], sampling, use_tqdm=False)
        (one,) = output.outputs
        first = one.logprobs[0]
        return {
            "tokens": list(one.token_ids),
            "logprobs": [[token, each.logprob] for token, each in first.items()],
        }

    def all_linked(
        self, prompts: list[dict[str, Any]], max_tokens: int, link: str
    ) -> list[list[int]]:
        """Greedy answers to all prompts at once, each of the form of ``linked``."""
        from vllm import SamplingParams

        sampling = [
            SamplingParams(
                temperature=0,
                max_tokens=max_tokens,
                ignore_eos=True,
                extra_args={"kv_transfer_params": {"entries": one["entries"], "link": link}},
            )
            for one in prompts
        ]
        inputs: list[Any] = [{"prompt_token_ids": one["prompt"]} for one in prompts]
        return [answer["tokens"] for answer in self.answers(inputs, sampling)]

    def rank_keys(self, prompt: list[int]) -> list[str]:
        """Keys in hexadecimal under which the chunks of a prompt are stored."""
        from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity, rank_key

        (layout,) = self._lookup.layouts
        chain = KeyChain(
            namespace=self._lookup._client.namespace,
            fingerprint=layout.model,
            identity=RequestIdentity(),
            chunk_tokens=layout.chunk_tokens,
        )
        return [rank_key(key, layout.layout_id).hex() for key in chain.extend(prompt)]

    def fail_forward(self, prompt: list[int]) -> str:
        """Has the next forward fail before its second layer; what the engine raises then."""
        from vllm import SamplingParams

        def fail(*_: object) -> None:
            handle.remove()
            raise RuntimeError("a layer failed")

        def hook(model: Any) -> Any:
            return model.model.layers[1].register_forward_pre_hook(fail)

        (handle,) = self.llm.apply_model(hook)
        sampling = SamplingParams(temperature=0, max_tokens=1)
        try:
            self.answers([{"prompt_token_ids": prompt}], sampling)
        except Exception as error:
            return str(error)
        return ""

    def after_match(self, socket: str, delete: str) -> bool:
        """Between the next match and its load a chunk is deleted."""
        from kvstored_client import Client

        lookup = self._lookup
        match = lookup._match

        def hooked(*arguments: Any) -> Any:
            found = match(*arguments)
            lookup._match = match
            with Client(socket, arena_bytes=1 << 20, strict=True) as client:
                assert client.delete([bytes.fromhex(delete)]) == 1
            return found

        lookup._match = hooked
        return True

    def in_load(self, pid: int, name: str) -> bool:
        """The daemon gets a signal when the next load has filled its first blocks."""
        filler = self.worker_side._loader._place.filler
        fill = filler.fill
        self._reached.clear()

        def hooked(*arguments: Any, **named: Any) -> Any:
            filler.fill = fill
            landing = fill(*arguments, **named)
            os.kill(pid, signal.Signals[name])
            self._reached.set()
            return landing

        filler.fill = hooked
        self._hold(self._reached.is_set)
        return True

    def copy_late(self, delay_s: float) -> bool:
        """From the first step on blocks are copied as late as on a GPU."""
        from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies

        side = self.worker_side
        assert side._loader is None, "what loads and saves is made with the first step"
        side._blocks.copies = DelayedCopies(delay_s=delay_s)
        return True

    def late_copies(self) -> int:
        """How many there were."""
        return int(self.worker_side._blocks.copies.made_count)

    def staged(self) -> bool:
        """Whether layer inputs come from memory that forwards put them into."""
        inputs = self.worker_side._inputs
        return inputs is not None and bool(inputs.are_staged)

    def until_load_ends(self) -> bool:
        """The next load has all the time that it needs before anything is computed."""
        loader = self.worker_side._loader
        self._hold(lambda: not loader.is_busy)
        return True

    def abort_in_load(self, prompt: list[int], entries: list[list[int]] | None = None) -> bool:
        """A request that is aborted when the signal of ``in_load`` was sent."""
        from vllm import SamplingParams

        engine = self.llm.llm_engine
        extra = {"kv_transfer_params": {"entries": entries}} if entries else None
        sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, extra_args=extra)
        engine.add_request("aborted", {"prompt_token_ids": prompt}, sampling)
        while not self._reached.is_set():
            engine.step()
        engine.abort_request(["aborted"])
        return engine.has_unfinished_requests() is False

    def arena_free_bytes(self) -> int:
        """What the worker shares with the daemon and nothing holds, when nothing moves."""
        side = self.worker_side
        while side.is_saving or side._loader.is_busy or side._loader._ended:
            time.sleep(POLL_S)
        link = side._client._connection.current()
        return int(link.session.arena.free_bytes)

    def fill_arena(self) -> bool:
        """Takes all memory that the worker shares with the daemon."""
        client = self.worker_side._client
        size = 1 << 40
        while size >= 4096:
            if (region := client.allocate(size)) is None:
                size //= 2
            else:
                self._regions.append(region)
        return True

    def free_arena(self) -> bool:
        """Gives it back."""
        for region in self._regions:
            region.release()
        self._regions.clear()
        return True

    @property
    def _lookup(self) -> Any:
        return self.scheduler.connector.scheduler_side.lookup

    def _hold(self, condition: Callable[[], bool]) -> None:
        """The step that orders the next load waits for the condition before it computes."""
        side = self.worker_side
        begin = side.begin_step

        def hooked(orders: Any) -> None:
            begin(orders)
            if orders.loads:
                side.begin_step = begin
                deadline_s = time.monotonic() + HELD_S
                while not condition() and time.monotonic() < deadline_s:
                    side._between.serve()
                    time.sleep(POLL_S)

        side.begin_step = hooked


if __name__ == "__main__":
    obey(BreakableChild)
