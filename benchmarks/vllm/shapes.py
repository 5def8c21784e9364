"""The model that all parts of the benchmark run."""

from typing import Any

VOCABULARY = 1024
LAYERS = 4
HIDDEN = 512
HEADS = 8
ITEM_BYTES = 4
"""float32: so that all ways give the same tokens."""
KV_TOKEN_BYTES = LAYERS * 2 * HIDDEN * ITEM_BYTES
HEADS_MODEL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "max_position_embeddings": 8192,
}
"""One key and value head for each query head: the case that HCache is for."""
