"""Eight requests that are restored at once in a pool of blocks that does not hold them all."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.benchmark import BenchmarkError
from benchmarks.vllm.lab import Lab, random_prompt
from benchmarks.vllm.shapes import VOCABULARY
from engine_adapters.vllm.settings.support import CAKE_SCHEDULER

REQUESTS = 8
PROMPT_TOKENS = 700
NEW_TOKENS = 48
POOL_BLOCKS = 120
"""Of 32 tokens: five requests with all their prompts fit, and not all of what they generate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What happened: tokens against those of an engine without a store, one request at a time."""

    tokens_equal: bool
    preemptions: float
    jumps: float
    restored_tokens: float


def run_crowd(lab: Lab, model: Path, generator: Random) -> Crowd:
    """Stores eight prompts and restores them together; engine "plain" runs, "crowd" is started.

    Raises BenchmarkError when nothing was restored or no request was preempted.
    """
    prompts = [random_prompt(generator, PROMPT_TOKENS, VOCABULARY) for _ in range(REQUESTS)]
    expected = [lab.engine("plain").tokens(prompt, max_tokens=NEW_TOKENS)[0] for prompt in prompts]
    lab.start(
        "crowd",
        model,
        mode="cake",
        scheduler_cls=CAKE_SCHEDULER,
        num_gpu_blocks_override=POOL_BLOCKS,
    )
    engine = lab.engine("crowd")
    for prompt in prompts:
        lab.store("crowd", prompt)
    before = engine.ask("metrics")
    tokens = engine.tokens(*prompts, max_tokens=NEW_TOKENS)
    after = engine.ask("metrics")

    def counted(name: str) -> float:
        return float(after[f"vllm:{name}"] - before.get(f"vllm:{name}", 0.0))

    crowd = Crowd(
        tokens_equal=tokens == expected,
        preemptions=counted("num_preemptions"),
        jumps=counted("kvstored_jumps"),
        restored_tokens=counted("kvstored_restored_tokens"),
    )
    if not (crowd.preemptions and crowd.jumps):
        raise BenchmarkError(f"no request was preempted, or none was restored: {crowd}")
    return crowd
