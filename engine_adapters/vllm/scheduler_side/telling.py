"""What of one engine's requests those hear who route by what is stored."""

from engine_adapters.vllm.events.change_follower import ChangeFollower, Sighting
from engine_adapters.vllm.identity.chunk_keys import KeyChain
from engine_adapters.vllm.messages.chunk_note import NoteWriter
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack


class Telling:
    """Belongs to the scheduler's thread.

    ``writer`` writes what other engines of the node need to announce chunks of this one; without
    it they hear nothing. ``follower`` is None where this engine publishes no events.
    """

    def __init__(
        self, writer: NoteWriter | None = None, follower: ChangeFollower | None = None
    ) -> None:
        self._writer = writer
        self.follower = follower

    def show(self, track: RequestTrack, found: Found) -> None:
        """A look-up has found chunks of a request."""
        if self.follower is None or found.chain is None or not track.identity.is_told:
            return
        self.follower.know(found.chain.root, _adapter_name(track))
        self.follower.sighted(_sighting(track, found.chain, found.chunk_count))

    def notes(self, track: RequestTrack, chunks: range) -> tuple[bytes, ...]:
        """What is to be put with some chunks of a request."""
        if self._writer is None or track.chain is None or not track.identity.is_told:
            return ()
        if self.follower is not None:
            self.follower.know(track.chain.root, _adapter_name(track))
            self.follower.saves(_sighting(track, track.chain, chunks.stop))
        notes = self._writer.notes(
            track.chain,
            chunks,
            token_ids=track.request.all_token_ids,
            block_hashes=track.request.block_hashes,
        )
        return tuple(note.encode() for note in notes)

    def retire(self) -> None:
        """What was stored does not help this engine any more."""
        if self.follower is not None:
            self.follower.retire()

    def close(self) -> None:
        """Tells nothing any more."""
        if self.follower is not None:
            self.follower.close()


def _sighting(track: RequestTrack, chain: KeyChain, chunk_count: int) -> Sighting:
    return Sighting(
        chain=chain,
        chunk_count=chunk_count,
        token_ids=track.request.all_token_ids,
        block_hashes=track.request.block_hashes,
    )


def _adapter_name(track: RequestTrack) -> str:
    adapter = track.request.lora_request
    return adapter.lora_name if adapter else ""
