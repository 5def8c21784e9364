"""Where the attention of prompts goes (EPIC, figure 4), by a dense computation."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.training.checkpoint import load_checkpoint
from benchmarks.training.network import Llama, NetworkShape


class WatchedLlama(Llama):
    """Keeps where the tokens of a sequence look; ``mask`` [positions, positions], bool."""

    def __init__(self, shape: NetworkShape, *, seed: int = 0) -> None:
        super().__init__(shape, seed=seed)
        self.mask = torch.zeros(0, 0, dtype=torch.bool)
        self.seen: list[Tensor] = []

    def _attention(self, prefix: str, normed: Tensor) -> Tensor:
        queries, keys, values = self._heads(prefix, normed)
        scores = self._rotate(queries) @ self._rotate(keys).transpose(-1, -2)
        scores /= math.sqrt(self.shape.head_dim)
        weights = scores.masked_fill(~self.mask, -math.inf).softmax(-1)
        # Of one sequence: the mean of its heads.
        self.seen.append(weights[0].mean(0))
        output = (weights @ values).transpose(1, 2).flatten(2)
        return linear(output, self.weight(f"{prefix}o_proj"))


def watched_model(directory: Path) -> WatchedLlama:
    """The trained model of this directory."""
    return load_checkpoint(directory, WatchedLlama)


@torch.inference_mode()
def attention_to_first_tokens(
    network: WatchedLlama,
    documents: Sequence[Sequence[int]],
    prompt: Sequence[int],
    *,
    is_naive: bool,
) -> Tensor:
    """Which share of the attention goes to the first token of each document.

    [layers, documents], float32; the mean of all heads and all tokens of documents and ``prompt``.
    With ``is_naive`` each document was computed without the others.
    """
    token_ids = [token for document in (*documents, prompt) for token in document]
    owners = torch.tensor(
        [number for number, document in enumerate((*documents, prompt)) for _ in document]
    )
    count = len(token_ids)
    mask = torch.ones(count, count, dtype=torch.bool).tril()
    if is_naive:
        mask &= (owners[:, None] == owners) | (owners[:, None] == len(documents))
    network.mask = mask
    network.seen = []
    network(torch.tensor([token_ids]))
    firsts = [int((owners == number).nonzero()[0]) for number in range(len(documents))]
    return torch.stack([seen[:, firsts].mean(0) for seen in network.seen])
