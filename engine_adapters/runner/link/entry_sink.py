"""Saves the states of entries, the last chunk of each included."""

import secrets
from collections.abc import Sequence

from torch import Tensor

from engine_adapters.runner.model.step import Segment
from engine_adapters.runner.save.saver import StateSaver

_NAME_BYTES = 12


class EntrySink:
    """As ``StateSink``: every request is the prompt of an entry.

    A saver keeps complete chunks only, but of conversations. So each request is one, which has a
    random name and ends with it. One thread only.
    """

    def __init__(self, saver: StateSaver) -> None:
        self._saver = saver

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """As ``StateSink``."""
        self._saver.begin_conversation(
            request_id,
            f"entry-{secrets.token_hex(_NAME_BYTES)}",
            token_ids,
            (),
            stored_tokens,
            is_tail_stored=False,
            keeps_tail=True,
        )

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """As ``StateSink``."""
        self._saver.begin_step(segments)

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """As ``StateSink``."""
        self._saver.take(layer, hidden, keys, values)

    def end_step(self) -> None:
        """As ``StateSink``."""
        self._saver.end_step()

    def abandon_step(self) -> None:
        """As ``StateSink``."""
        self._saver.abandon_step()

    def end_request(self, request_id: int) -> None:
        """As ``StateSink``."""
        self._saver.end_request(request_id)
