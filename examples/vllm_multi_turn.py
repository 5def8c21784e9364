"""A conversation in vLLM whose history outlives the engine.

    python examples/vllm_multi_turn.py [SOCKET] [--model MODEL]

Takes three turns; between the second and the third the engine is a new one. Run it with the
environment of ``make test-vllm`` and a daemon at SOCKET (docs/vllm.md).
"""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from benchmarks.quality.model import trained_model
from examples.conversation.script import SAYINGS, Saying

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

TURNS = (SAYINGS[0], SAYINGS[2], SAYINGS[4])
"""A paragraph, pairs of words, and a question for one of them."""
ANSWER_TOKENS_MAX = 32
SHOWN_WORDS = 8
"""Of the end of what is said."""
WINDOW_TOKENS = 512
"""All turns and answers together have fewer."""
REPETITION_PENALTY = 1.15
"""Without it, small models repeat themselves."""


def start_engine(model: str, socket: str) -> Any:
    """An engine with the connector, as ``--kv-transfer-config`` would make it."""
    from vllm import LLM
    from vllm.config import KVTransferConfig

    return LLM(
        model=model,
        dtype="float32",
        block_size=32,
        max_model_len=WINDOW_TOKENS,
        enforce_eager=True,
        enable_prefix_caching=False,
        distributed_executor_backend="uni",
        kv_transfer_config=KVTransferConfig(
            kv_connector="KvstoredConnector",
            kv_connector_module_path="engine_adapters.vllm.connector",
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={"socket": socket, "mode": "prefix"},
        ),
    )


def take_turn(engine: Any, history: Sequence[int], saying: Saying) -> Any:
    """What vLLM answers to all that was said before, as tokens, and what is said now."""
    from vllm import SamplingParams

    said = engine.get_tokenizer().encode(saying.text, add_special_tokens=not history)
    sampling = SamplingParams(
        temperature=0,
        repetition_penalty=REPETITION_PENALTY,
        max_tokens=min(saying.answer_tokens, ANSWER_TOKENS_MAX),
        ignore_eos=True,
    )
    prompt = {"prompt_token_ids": [*history, *said]}
    (output,) = engine.generate([prompt], sampling, use_tqdm=False)
    return output


def main() -> None:
    """Takes the turns and prints what was said; a turn's prompt is all that was said before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket", nargs="?", default="var/kvstored.sock", help="the daemon's")
    parser.add_argument("--model", help="a folder of a model; the small trained Llama if not given")
    options = parser.parse_args()
    model = options.model or str(trained_model())
    engine = start_engine(model, options.socket)
    history: list[int] = []
    lines = []
    for number, saying in enumerate(TURNS, start=1):
        if number == len(TURNS):
            engine.llm_engine.engine_core.shutdown()
            engine = start_engine(model, options.socket)
        output = take_turn(engine, history, saying)
        (answer,) = output.outputs
        lines.append(
            f"turn {number}: {len(output.prompt_token_ids)} prompt tokens, "
            f"{output.num_cached_tokens or 0} restored"
        )
        said = " ".join(saying.text.split()[-SHOWN_WORDS:])
        lines.append(f"  ... {said} -> {' '.join(answer.text.split())}")
        history = [*output.prompt_token_ids, *answer.token_ids]
    print("\n".join(lines))
    engine.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
