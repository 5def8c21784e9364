"""The text of tokens as they come, never half a character. Pure."""

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"
"""What decoding gives for bytes that are no character, or not yet."""

HELD_TOKENS_MAX = 64
"""A character has four bytes at most. So much later it is not one any more, and decoding all that
is held at each token would take longer and longer."""


class Detokenizer:
    """For the tokens of one answer. The texts that it gives are together what decoding gives.

    Few tokens are decoded at a time: those whose text is not given yet, after a stretch before
    them, because some decoders treat a first token differently.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._token_ids: list[int] = []
        self._first = 0
        self._given = 0

    def push(self, token_id: int) -> str:
        """The text that is certain with this token; empty within a character."""
        self._token_ids.append(token_id)
        text = self._new_text()
        if not text:
            return ""
        is_held = text.endswith(UNFINISHED)
        if is_held and len(self._token_ids) - self._given < HELD_TOKENS_MAX:
            return ""
        self._first, self._given = self._given, len(self._token_ids)
        return text

    def flush(self) -> str:
        """The rest; bytes that never became a character are shown as such."""
        text = self._new_text()
        self._first = self._given = len(self._token_ids)
        return text

    def _new_text(self) -> str:
        window = self._token_ids[self._first :]
        before = self._decode(window[: self._given - self._first])
        return self._decode(window)[len(before) :]
