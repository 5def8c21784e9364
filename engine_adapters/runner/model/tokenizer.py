"""Text to token ids and back, by the ``tokenizer.json`` of a model directory."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as HuggingFaceTokenizer

from engine_adapters.runner.model.errors import ModelError

TOKENIZER_FILE = "tokenizer.json"


class Tokenizer:
    """Stateless; safe to share between threads."""

    def __init__(self, tokenizer: HuggingFaceTokenizer) -> None:
        self._tokenizer = tokenizer

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
        """Token ids of ``text``; a continuation gets no begin-of-sequence token."""
        encoding = self._tokenizer.encode(text, add_special_tokens=not is_continuation)
        return list(encoding.ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids`` without special tokens."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))
