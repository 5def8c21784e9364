"""A training of a reader that takes no time."""

import torch
from tokenizers import Tokenizer, models

from benchmarks.pic.facts.library import LibraryShape, Signs
from benchmarks.pic.training.batches import BatchShape, Sources
from benchmarks.training.network import NetworkShape
from benchmarks.training.plan import Plan, Stage
from benchmarks.training.prepared import Prepared

LIBRARY = LibraryShape(
    document_counts=range(2, 4),
    document_tokens=range(14, 25),
    token_count=60,
    fact_count=2,
    chain_count=2,
    class_count=1,
    example_count=2,
    unknown_count=1,
)
BATCH = BatchShape(sequence_count=24, position_count=96, library=LIBRARY)
PLAN = Plan(seed=3, stages=(Stage(step_count=80, batch=BATCH),), warmup_steps=10, matrix_rate=0.006)
SHAPE = NetworkShape(
    vocab_size=600,
    hidden_size=128,
    intermediate_size=128,
    layer_count=3,
    head_count=4,
    position_count=128,
    theta=500_000.0,
)
SOURCES = Sources(
    signs=Signs(document=1, fact=2, chain=3, example=4, unknown=5),
    words=range(100, 400),
    text=[10 + number % 90 for number in range(3000)],
    filler=6,
)
PREPARED = Prepared(
    tokenizer=Tokenizer(models.BPE()), tokens=torch.tensor(SOURCES.text), sources={"one": 3}
)
