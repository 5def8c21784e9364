"""The small trained model that the repository ships."""

import json
import math
import random

import pytest
import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from benchmarks.quality.bare_window import BareWindow
from benchmarks.quality.held_out import held_out_texts
from benchmarks.quality.model import DTYPE, WINDOW_TOKENS, trained_model
from benchmarks.quality.records import RecordWords
from benchmarks.quality.training.plan import PLAN
from benchmarks.training.checkpoint import CHECKPOINT_BYTES_MAX, NOTE_FILE
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE

TOKENIZER = Tokenizer.from_file(str(trained_model() / TOKENIZER_FILE))


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.from_directory(trained_model(), dtype=DTYPE)


def test_it_is_what_the_plan_makes() -> None:
    note = json.loads((trained_model() / NOTE_FILE).read_text())
    assert (note["seed"], note["steps"]) == (PLAN.seed, PLAN.step_count)
    # Beside the weights a file has a short header.
    assert (trained_model() / SINGLE_FILE).stat().st_size < CHECKPOINT_BYTES_MAX


def test_it_has_twice_the_positions_of_the_window_that_is_measured(model: Model) -> None:
    assert model.config.position_count == 2 * WINDOW_TOKENS


@pytest.mark.parametrize("name", ["reference", "documents", "docstrings"])
def test_it_foretells_english(model: Model, name: str) -> None:
    script = TOKENIZER.encode(held_out_texts()[name]).ids[:512]
    logits = BareWindow(model, window_tokens=512).extend(script)
    loss = cross_entropy(logits[:-1], torch.tensor(script[1:]))
    # By the frequencies of tokens alone it is above six nats.
    assert loss < 5 < math.log(PLAN.vocab_size)


def test_it_recalls_what_it_has_read(model: Model) -> None:
    words = RecordWords.of_vocabulary(TOKENIZER.get_vocab())
    generator = random.Random(7)
    told = words.draw(generator, 30)
    asked = generator.sample(told, len(told))
    logits = BareWindow(model, window_tokens=512).extend([*words.write(told), *words.write(asked)])
    said = logits[len(logits) // 2 + 1 :: 3].argmax(-1).tolist()
    right = sum(answer == record.value for answer, record in zip(said, asked, strict=True))
    assert right >= 0.8 * len(asked)
