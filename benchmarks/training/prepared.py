"""The training text as tokens, made once and kept in a folder."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.training.corpus import gather
from engine_adapters.runner.model.random_model import train_tokenizer
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE

TOKEN_FILE = "tokens.npy"
SOURCE_FILE = "sources.json"
TOKENIZER_PART = 8
"""The tokenizer is trained on every eighth document."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """``tokens`` [n], int64, of all text; ``sources``: characters by package."""

    tokenizer: Tokenizer
    tokens: Tensor
    sources: dict[str, int]


def prepare(folder: Path, *, vocab_size: int, report: Callable[[str], None]) -> Prepared:
    """Reads what an earlier call wrote to ``folder``, or gathers the text and writes it there."""
    if not (folder / SOURCE_FILE).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        report("gathering the text")
        corpus = gather()
        report(f"training the tokenizer; {len(corpus.text)} characters of text")
        tokenizer = train_tokenizer(corpus.documents[::TOKENIZER_PART], vocab_size=vocab_size)
        tokenizer.save(str(folder / TOKENIZER_FILE))
        encoded = tokenizer.encode_batch([f"{each}\n\n" for each in corpus.documents])
        ids = np.concatenate([np.asarray(each.ids, dtype=np.uint16) for each in encoded])
        np.save(folder / TOKEN_FILE, ids)
        # Last: with it, all is there.
        (folder / SOURCE_FILE).write_text(json.dumps(corpus.sizes, indent=2) + "\n")
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    return Prepared(
        tokenizer=tokenizer,
        tokens=torch.from_numpy(np.load(folder / TOKEN_FILE).astype(np.int64)),
        sources=json.loads((folder / SOURCE_FILE).read_text()),
    )
