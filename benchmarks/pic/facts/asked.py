"""Prompts of documents in an order of their own and a question, linked by a trained model."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from benchmarks.benchmark import BenchmarkError
from benchmarks.pic.facts.library import Library, LibraryShape, Question, Signs, draw_library
from benchmarks.pic.facts.ways import Answer, Way
from benchmarks.quality.held_out import held_out_texts
from benchmarks.quality.records import RecordWords
from engine_adapters.link.split import split_fixed
from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EntryName
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

TRAINED_MODEL = Path(__file__).parents[1] / "model"
"""Made by ``python -m benchmarks.pic.training``, and copied here."""
DTYPE = torch.float32
"""Rounding must not be what tells the methods apart."""
FIXED_TOKENS = 64
"""Of an entry where the prompt is cut without looking where documents end."""
SINK_TOKENS = 4
"""Text before each entry with a sink."""


def trained_model() -> Path:
    """The directory; raises BenchmarkError where the weights are missing."""
    if not (TRAINED_MODEL / SINGLE_FILE).is_file():
        raise BenchmarkError(
            f"{TRAINED_MODEL} holds no {SINGLE_FILE}; python -m benchmarks.pic.training makes one "
            "in var/pic/model, to be copied there"
        )
    return TRAINED_MODEL


class Reader:
    """The trained model, what it may be asked, and links of it. One thread only."""

    def __init__(self, client: Client, directory: Path) -> None:
        model = Model.from_directory(directory, dtype=DTYPE)
        tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
        vocabulary = tokenizer.get_vocab()
        self._signs = Signs.of_vocabulary(vocabulary)
        self._words = RecordWords.of_vocabulary(vocabulary).words
        # Not of the project's own documents: libraries would change with each sentence there.
        texts = [text for name, text in held_out_texts().items() if name != "documents"]
        self._text = tokenizer.encode("\n\n".join(texts)).ids
        states = StateFormat.of_model(model, model_fingerprint(directory, model.config))
        self._runner = LinkRunner(model, client, states, cache_tokens=model.config.position_count)

    def draw(self, generator: random.Random, shape: LibraryShape) -> Library:
        """A library between text that the model was not trained on."""
        return draw_library(generator, self._signs, self._words, self._text, shape)

    def entries(self, library: Library, way: Way) -> list[str]:
        """The ids of what is linked, in the order of the prompt; made where it is not there."""
        documents: Sequence[Sequence[int]] = [each.token_ids for each in library.documents]
        if way.is_fixed:
            whole = [token for document in documents for token in document]
            documents = split_fixed(whole, FIXED_TOKENS)
        sink_ids = self._text[:SINK_TOKENS] if way.has_sink else ()
        return self._runner.generate_context_cache(documents, sink_ids=sink_ids)

    def ask(self, entry_ids: Sequence[str], question: Question, way: Way) -> Answer:
        """The first token of the answer; raises BenchmarkError where states were lost."""
        entries = [EntryName(one) for one in entry_ids]
        done = self._runner.link(
            LinkRequest(parts=[*entries, question.prompt], new_tokens_max=1, method=way.method)
        )
        if done.restore.restored_tokens + done.computed_tokens != done.prompt_tokens:
            raise BenchmarkError(f"{way}: not all states came from the store: {done.restore}")
        return Answer(
            kind=question.kind,
            is_right=done.generated_ids[0] == question.answer,
            ttft_s=done.ttft_s,
            computed_tokens=done.computed_tokens,
        )

    def close(self) -> None:
        """Ends the runner."""
        self._runner.close()
