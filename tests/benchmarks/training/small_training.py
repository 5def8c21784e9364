"""A training that takes no time."""

import torch
from tokenizers import Tokenizer, models

from benchmarks.quality.records import RecordWords
from benchmarks.quality.training.batches import BatchShape, draw_batch
from benchmarks.training.batch import Batch
from benchmarks.training.network import Llama
from benchmarks.training.plan import Plan, Stage
from benchmarks.training.prepared import Prepared
from benchmarks.training.trainer import Trainer

BATCH = BatchShape(sequence_count=2, recall_count=1, position_count=128, record_count=20)
QUESTIONS = BatchShape(
    sequence_count=4, recall_count=4, position_count=48, record_count=8, has_text=False
)
PLAN = Plan(
    seed=20,
    stages=(Stage(step_count=1, batch=QUESTIONS), Stage(step_count=3, batch=BATCH)),
    warmup_steps=1,
)
PREPARED = Prepared(
    tokenizer=Tokenizer(models.BPE()), tokens=torch.arange(3000) % 50, sources={"one": 3, "two": 4}
)
WORDS = RecordWords(tuple(range(50, 500)), 500)


def draw(shape: BatchShape, number: int) -> Batch:
    return draw_batch(PREPARED.tokens, WORDS, shape, seed=PLAN.seed, number=number)


def trainer_of(network: Llama, plan: Plan[BatchShape] = PLAN) -> Trainer[BatchShape]:
    return Trainer(network, plan, draw, answer_kinds=1)
