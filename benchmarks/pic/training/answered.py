"""How much a network answers of libraries like those that links are judged with."""

import random

import torch

from benchmarks.pic.facts.library import Kind, LibraryShape, draw_library
from benchmarks.pic.training.batches import Sources
from benchmarks.training.network import Llama

CHECKED_LIBRARIES = 24


@torch.inference_mode()
def answered_by_kind(
    network: Llama, sources: Sources, shape: LibraryShape, *, seed: int
) -> dict[str, float]:
    """Which share of questions of each kind is answered rightly, each alone after all documents."""
    generator = random.Random(seed)
    hits: dict[str, list[bool]] = {kind.value: [] for kind in Kind}
    for _ in range(CHECKED_LIBRARIES):
        library = draw_library(generator, sources.signs, sources.words, sources.text, shape)
        read = [token for document in library.documents for token in document.token_ids]
        one_of_each = {question.kind: question for question in library.questions}
        for kind, question in one_of_each.items():
            token_ids = torch.tensor([[*read, *question.prompt]])
            wanted = torch.zeros_like(token_ids, dtype=torch.bool)
            wanted[0, -1] = True
            with torch.autocast("cpu", torch.bfloat16):
                said = int(network(token_ids, wanted).argmax())
            hits[kind.value].append(said == question.answer)
    return {kind: sum(each) / len(each) for kind, each in hits.items()}
