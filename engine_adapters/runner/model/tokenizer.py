"""Text to token ids and back, by the ``tokenizer.json`` of a model directory."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from tokenizers import Tokenizer as HuggingFaceTokenizer

from engine_adapters.runner.model.errors import ModelError

TOKENIZER_FILE = "tokenizer.json"

PROBE = "."
"""Any text: what comes before it is what a text begins with."""


class Tokenizer:
    """Stateless; safe to share between threads."""

    def __init__(self, tokenizer: HuggingFaceTokenizer) -> None:
        self._tokenizer = tokenizer
        # What it would put after a text is left out: the model goes on from there.
        probe = tokenizer.encode(PROBE)
        marked = zip(probe.ids, probe.special_tokens_mask, strict=True)
        self._opening = [token_id for token_id, _ in takewhile(lambda one: one[1], marked)]

    @classmethod
    def from_directory(cls, directory: Path) -> "Tokenizer":
        """Reads ``tokenizer.json``; raises ModelError when it is missing or unreadable."""
        path = directory / TOKENIZER_FILE
        if not path.is_file():
            raise ModelError(f"{directory} holds no {TOKENIZER_FILE}")
        try:
            text = path.read_text(encoding="utf-8")
            return cls(HuggingFaceTokenizer.from_str(text))
        # The binding raises Exception itself for every kind of malformed file.
        except Exception as error:
            raise ModelError(f"cannot read {path}: {error}") from error

    def encode(self, text: str, *, is_continuation: bool = False) -> list[int]:
        """Token ids of ``text``, which something follows: no end-of-sequence token is added.

        A continuation gets no begin-of-sequence token either. Special tokens that ``text`` spells
        are what they are.
        """
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return [*([] if is_continuation else self._opening), *encoding.ids]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids`` without special tokens."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))
