"""Which requests have linked prompts; nothing of those is mixed with others."""

import logging
import secrets
from collections.abc import Sequence
from typing import Any

from engine_adapters.vllm.messages.link_request import LinkRequestError, link_request
from engine_adapters.vllm.messages.linked_span import LinkedSpan
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.linking import Linking
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack

LOGGER = logging.getLogger("vllm.kvstored")
CAUSES_MAX = 16
"""Different causes that are logged."""


class Links:
    """One for each engine; belongs to the scheduler's thread.

    ``is_on``: the engine stores layer inputs of all layers, which can go to any position, and its
    scheduler moves requests.
    """

    def __init__(self, *, is_on: bool, block_tokens: int, chunk_tokens: int) -> None:
        self._is_on = is_on
        self._block_tokens = block_tokens
        self._chunk_tokens = chunk_tokens
        self._said: set[str] = set()
        self._tracks: dict[str, RequestTrack] = {}

    def add(self, track: RequestTrack) -> None:
        """A request arrived that may read the store; its ``linking`` is set where it is linked."""
        track.linking = self._of(track.request)
        if track.linking is not None:
            self._tracks[track.request.request_id] = track

    def drop(self, request_id: str) -> None:
        """A request has ended."""
        self._tracks.pop(request_id, None)

    def jumps(self) -> list[tuple[RequestTrack, int, int]]:
        """Requests that are to go over what was loaded; each is asked for once.

        Each with its next position, and how many tokens it has gone over since it began.
        """
        due = []
        for track in self._tracks.values():
            linking = track.linking
            assert linking is not None
            position = track.request.num_computed_tokens
            # One without a computed token was preempted, maybe between two steps.
            target = linking.jump_from(position) if position else None
            if target is not None:
                due.append((track, target, linking.jumped_tokens))
        return due

    @staticmethod
    def begin(linking: Linking, found: Found, *, computed_tokens: int) -> bool:
        """Plans by what the store has; False where nothing of it helps.

        Nor where the engine has the states of the first tokens already: a chunk that is loaded over
        them would undo what was computed at a boundary.
        """
        stored = [one.chunk_count for one in found.entries]
        if stored and not computed_tokens and linking.begin(stored):
            return True
        linking.give_up()
        return False

    def span(self, linking: Linking, block_ids: Sequence[int]) -> LinkedSpan:
        """Where the chunks of a request go."""
        return LinkedSpan(
            first_tokens=tuple(one.first_token for one in linking.chunks),
            block_ids=tuple(block_ids),
            chunk_blocks=self._chunk_tokens // self._block_tokens,
            block_tokens=self._block_tokens,
        )

    @staticmethod
    def keys(linking: Linking, found: Found) -> tuple[bytes, ...]:
        """Those of the chunks, in the same order."""
        return tuple(
            found.entries[one.entry].chain_keys(range(one.chunk, one.chunk + 1))[0]
            for one in linking.chunks
        )

    @staticmethod
    def set_apart(request: Any) -> None:
        """Has vLLM's own prefix cache take its blocks for no other request's, nor for its own.

        What a linked prompt computes depends on what it was linked with; one that was preempted is
        linked again from its first token on.
        """
        request.cache_salt = secrets.token_hex(16)
        request.block_hashes.clear()
        request.update_block_hashes()

    def _of(self, request: Any) -> Linking | None:
        """For a request that names entries; one that cannot be linked is computed, and why is said.

        Each cause is logged once, and the first ones only: clients choose them.
        """
        parameters = getattr(request, "kv_transfer_params", None)
        try:
            wanted = link_request(parameters, prompt_tokens=request.num_tokens)
            if wanted is None or not wanted.entries:
                return None
            self._check(request)
        except LinkRequestError as error:
            if str(error) not in self._said and len(self._said) < CAUSES_MAX:
                self._said.add(str(error))
                LOGGER.warning(
                    "kvstored computes request %s without links: %s", request.request_id, error
                )
            return None
        self.set_apart(request)
        return Linking(wanted, prompt_tokens=request.num_tokens, chunk_tokens=self._chunk_tokens)

    def _check(self, request: Any) -> None:
        if not self._is_on:
            raise LinkRequestError(
                'it names entries, which mode "pic" links and this engine does not'
            )
        if getattr(request, "mm_features", None):
            raise LinkRequestError("entries of a prompt with images or the like cannot be linked")
