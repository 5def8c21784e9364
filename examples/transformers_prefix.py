"""Answers two questions about one document with a small random Llama and transformers.

python examples/transformers_prefix.py [SOCKET]

The states of the document are stored with the first answer and restored for the second one. Run it
again: that process restores them for both.
"""

import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine_adapters.transformers import KvstoredCache
from kvstored_client import Client

DOCUMENT_TOKENS, QUESTION_TOKENS, ANSWER_TOKENS = 512, 20, 16

CONFIG = LlamaConfig(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
    initializer_range=0.4,
    bos_token_id=None,
    eos_token_id=None,
)


def main() -> int:
    """Whether each answer has the tokens that it has without a store: the exit status."""
    torch.manual_seed(1)
    model = LlamaForCausalLM(CONFIG).eval()
    document = torch.randint(CONFIG.vocab_size, (1, DOCUMENT_TOKENS))
    are_equal = True
    with Client(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        for number in (1, 2):
            question = torch.randint(CONFIG.vocab_size, (1, QUESTION_TOKENS))
            inputs: dict[str, Any] = {"input_ids": torch.cat([document, question], dim=1)}
            options: dict[str, Any] = {"max_new_tokens": ANSWER_TOKENS, "do_sample": False}
            plain = model.generate(**inputs, **options)

            cache = KvstoredCache(model, **inputs, client=client)
            output = model.generate(**inputs, past_key_values=cache, **options)
            stored = cache.save(is_durable=True)

            is_equal = torch.equal(output, plain)
            are_equal &= is_equal
            print(
                f"question {number}: {cache.restored_tokens} tokens restored, {stored} chunks "
                f"stored, the same answer as without a store: {is_equal}"
            )
    return 0 if are_equal else 1


if __name__ == "__main__":
    sys.exit(main())
