"""A conversation in vLLM whose history outlives the engine.

    python examples/vllm_multi_turn.py MODEL [SOCKET]

Takes three turns; between the second and the third the engine is a new one. Run it with the
environment of ``make test-vllm`` and a daemon at SOCKET (docs/vllm.md).
"""

import os
import sys
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

QUESTIONS = ("w10 w20 w30 " * 200, "w40 w50 w60 " * 20, "w70 w80 w90 " * 20)
NEW_TOKENS = 32


def start_engine(model: str, socket: str) -> Any:
    """An engine with the connector, as ``--kv-transfer-config`` would make it."""
    from vllm import LLM
    from vllm.config import KVTransferConfig

    return LLM(
        model=model,
        dtype="float32",
        block_size=32,
        max_model_len=2048,
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


def take_turn(engine: Any, text: str) -> tuple[str, int, int]:
    """The answer, how many tokens the prompt had, and how many were restored."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    (output,) = engine.generate([text], sampling, use_tqdm=False)
    return output.outputs[0].text, len(output.prompt_token_ids), output.num_cached_tokens or 0


def main() -> None:
    """Takes the turns; a turn's prompt is all that was said before."""
    model = sys.argv[1]
    socket = sys.argv[2] if len(sys.argv) > 2 else "var/kvstored.sock"
    engine = start_engine(model, socket)
    text = ""
    lines = []
    for number, question in enumerate(QUESTIONS, start=1):
        if number == len(QUESTIONS):
            engine.llm_engine.engine_core.shutdown()
            engine = start_engine(model, socket)
        text = f"{text} {question}".strip()
        answer, prompt_tokens, restored_tokens = take_turn(engine, text)
        lines.append(f"turn {number}: {prompt_tokens} prompt tokens, {restored_tokens} restored")
        text = f"{text} {answer}"
    print("\n".join(lines))
    engine.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
