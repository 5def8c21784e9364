"""Engines that live side by side and a daemon that is restarted below them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from benchmarks.benchmark import BenchmarkError
from benchmarks.interleave import Alternative, Measured, Rounds, interleave
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from engine_adapters.vllm.testing.engine_arguments import transfer_config
from engine_adapters.vllm.testing.engine_process import EngineProcess

MIB = 1024 * 1024
DEVICE_BYTES = 1024 * MIB
DRAM_BYTES = 64 * MIB
ARENA_BYTES = 512 * MIB
STEP_TOKENS = 256
NO_PROMPT_TOKEN = 4
"""A prompt of which nothing is ever stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """One prompt of one engine: time to the first token, and what was not computed."""

    ttft_s: float
    cached_tokens: int
    tokens: tuple[int, ...]


class Lab:
    """One daemon, and engines by name of which one works at a time. Not thread-safe.

    The daemon's rate can be changed: it is restarted, so that nothing is in its DRAM.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._options = DaemonOptions(
            folder=folder,
            device_bytes=DEVICE_BYTES,
            dram_bytes=DRAM_BYTES,
            arena_bytes_max=ARENA_BYTES,
            device_count=1,
        )
        self._daemon = stack.enter_context(DaemonProcess(self._options))
        self._engines: dict[str, EngineProcess] = {}

    def start(
        self,
        name: str,
        model: Path,
        *,
        mode: str | None,
        options: Mapping[str, Any] = MappingProxyType({}),
        **changes: Any,
    ) -> None:
        """Starts an engine; without a mode it has no connector of ours, which gets ``options``."""
        if mode is not None:
            changes["kv_transfer_config"] = transfer_config(
                self._options.socket,
                mode=mode,
                arena_bytes="256MiB",
                match_timeout_ms=5000,
                load_timeout_ms=120_000,
                **options,
            )
        engine = EngineProcess(model, self._folder / f"{name}.log", **changes)
        self._engines[name] = self._stack.enter_context(engine)

    def end(self, name: str) -> None:
        """Ends an engine; its name is free again."""
        self._engines.pop(name).__exit__()

    def engine(self, name: str) -> EngineProcess:
        """An engine that was started."""
        return self._engines[name]

    @contextmanager
    def awake(self, name: str) -> Iterator[EngineProcess]:
        """An engine that is paused before and after."""
        engine = self._engines[name]
        engine.resume()
        yield engine
        engine.pause()

    def limit(self, names: Sequence[str], bytes_per_s: int | None) -> None:
        """Restarts the daemon at another rate of its device and waits for these engines."""
        self._daemon.stop()
        options = replace(self._options, device_bytes_per_s_max=bytes_per_s, is_formatted=True)
        options.config.write_text(options.document())
        self._daemon.start()
        for name in names:
            if not self._engines[name].ask("reconnect"):
                raise BenchmarkError(f"engine {name} does not find the restarted daemon")

    def take(self, name: str, prompt: list[int], *, max_tokens: int = 1) -> Restored:
        """One prompt."""
        (answer,) = self._engines[name].generate(prompt, max_tokens=max_tokens)
        return Restored(
            ttft_s=answer["ttft_s"],
            cached_tokens=answer["cached"],
            tokens=tuple(answer["tokens"]),
        )

    def store(self, name: str, prompt: list[int]) -> None:
        """Has an engine compute the prompt and store it; raises BenchmarkError when it did not."""
        before = self._engines[name].counted("dropped_saves")
        self.take(name, prompt)
        self._engines[name].ask("settle")
        if self._engines[name].counted("dropped_saves") > before:
            raise BenchmarkError("chunks of the measured prompt were not stored")

    def loaded_bytes(self, name: str) -> float:
        """What an engine has loaded so far."""
        # What the last step's loads were comes with another one.
        self.take(name, [NO_PROMPT_TOKEN], max_tokens=2)
        return self._engines[name].counted("load_bytes")

    def leaked_blocks(self) -> int:
        """Blocks that no request holds and that are not free, in all engines."""
        counts = [engine.ask("blocks") for engine in self._engines.values()]
        return sum(count["all"] - count["free"] for count in counts)


def compared(
    take: Callable[[str], Measured],
    ways: Iterable[str],
    *,
    rounds: Rounds,
    generator: Random,
    prepare: Callable[[], None],
) -> dict[str, tuple[float, ...]]:
    """What ``take`` measures of each way, in rounds that ``prepare`` begins."""
    return interleave(
        [[Alternative(run=partial(take, way)) for way in ways]],
        rounds=rounds,
        generator=generator,
        announce=lambda _: None,
        prepare=prepare,
    )


def random_prompt(generator: Random, token_count: int, vocabulary: int) -> list[int]:
    """Tokens that are no special ones."""
    return [generator.randrange(4, vocabulary) for _ in range(token_count)]
