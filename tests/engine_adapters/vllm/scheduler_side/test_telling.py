"""What the follower hears of the chunks that an engine saves."""

from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.events.change_follower import ChangeFollower, FollowedStore
from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity, rank_key
from engine_adapters.vllm.messages.chunk_note import NoteWriter
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack
from engine_adapters.vllm.scheduler_side.telling import Telling
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_client.testing import MemoryClient, MemoryStore, StoredChunk

CHUNKS, CHUNK_TOKENS, BLOCK_TOKENS = 3, 8, 4
TOKENS = list(range(CHUNKS * CHUNK_TOKENS))
HASHES = [bytes([number + 1]) * 32 for number in range(len(TOKENS) // BLOCK_TOKENS)]
LAYOUT = StateLayout(
    model="m", dtype="f", layers=(LayerState(StateKind.KV, 64),), chunk_tokens=CHUNK_TOKENS
)


@pytest.fixture
def follower(client: MemoryClient) -> ChangeFollower:
    writer = NoteWriter(lambda: b"sha256", chunk_tokens=CHUNK_TOKENS, block_tokens=BLOCK_TOKENS)
    followed = FollowedStore(client=client, layouts=(LAYOUT,), fingerprint="m")
    return ChangeFollower(followed, writer, lambda event: event)


@pytest.fixture
def track(client: MemoryClient) -> RequestTrack:
    identity = RequestIdentity()
    chain = KeyChain(
        namespace=client.namespace, fingerprint="m", identity=identity, chunk_tokens=CHUNK_TOKENS
    )
    chain.extend(TOKENS)
    request: Any = Mock(all_token_ids=TOKENS, block_hashes=HASHES, lora_request=None)
    return RequestTrack(request=request, identity=identity, chunk_tokens=CHUNK_TOKENS, chain=chain)


def test_all_chunks_up_to_those_that_are_saved_are_asked_for_at_first(
    store: MemoryStore, follower: ChangeFollower, track: RequestTrack
) -> None:
    """Else routers heard of those of an engine's first request with the next one alone."""
    assert len(Telling(follower.writer, follower).notes(track, range(1, CHUNKS))) == CHUNKS - 1
    assert track.chain is not None
    for key in track.chain.extend(()):
        # Without a note: no change of the store's tells of it.
        store.chunks[rank_key(key, LAYOUT.layout_id)] = StoredChunk(
            layout_id=LAYOUT.layout_id, slices=(b"",), token_count=CHUNK_TOKENS
        )
    while follower.poll():
        pass
    told = [each for event in follower.take() for each in event.block_hashes]
    assert told == HASHES


def test_an_engine_without_a_follower_writes_notes_alone(
    follower: ChangeFollower, track: RequestTrack
) -> None:
    assert len(Telling(follower.writer).notes(track, range(CHUNKS))) == CHUNKS
    assert Telling().notes(track, range(CHUNKS)) == ()
