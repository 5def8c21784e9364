import struct
from dataclasses import replace

import pytest

from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity
from engine_adapters.vllm.messages.chunk_note import ChunkNote, NoteWriter
from kvstored_contract.limits import NOTE_BYTES_MAX

NOTE = ChunkNote(
    scope=b"s" * 16,
    chain_key=b"k" * 32,
    parent_key=b"p" * 32,
    block_hashes=(b"a" * 32, b"b" * 32),
    token_ids=(1, 2, 3, 2**32 - 1),
)
TOKENS = list(range(20))
HASHES = [bytes([number]) * 32 for number in range(10)]


def chain_of(fingerprint: str = "model", salt: str = "") -> KeyChain:
    chain = KeyChain(
        namespace="n",
        fingerprint=fingerprint,
        identity=RequestIdentity(salt=salt),
        chunk_tokens=4,
    )
    chain.extend(TOKENS)
    return chain


@pytest.mark.parametrize("parent_key", [b"", b"p" * 32])
def test_note_comes_back_as_it_was(parent_key: bytes) -> None:
    note = replace(NOTE, parent_key=parent_key)
    assert ChunkNote.decode(note.encode()) == note


def test_short_hashes_are_kept(tmp_path: object) -> None:
    note = replace(NOTE, block_hashes=(b"a" * 16, b"b" * 16))
    assert ChunkNote.decode(note.encode()) == note


@pytest.mark.parametrize(
    "encoded",
    [b"", b"anything", NOTE.encode()[:-1], NOTE.encode() + b"x", b"\2" + NOTE.encode()[1:]],
)
def test_what_somebody_else_put_is_no_note(encoded: bytes) -> None:
    assert ChunkNote.decode(encoded) is None


@pytest.mark.parametrize("hash_bytes_and_blocks", [(0, 0), (0, 2), (32, 0)])
def test_a_foreign_note_with_hashes_of_no_bytes_raised(
    hash_bytes_and_blocks: tuple[int, int],
) -> None:
    head = NOTE.encode()[: -2 * 32 - 4 * len(NOTE.token_ids)]
    lengths = struct.pack("<BH", *hash_bytes_and_blocks)
    assert ChunkNote.decode(head[:1] + lengths + struct.pack("<I", 0) + head[8:]) is None


def test_note_that_is_longer_than_allowed_is_left_out() -> None:
    assert replace(NOTE, token_ids=(1,) * (NOTE_BYTES_MAX // 4)).encode() == b""


def test_notes_of_a_request_have_its_tokens_and_hashes() -> None:
    writer = NoteWriter(lambda: b"sha256", chunk_tokens=4, block_tokens=2)
    chain = chain_of()
    keys = chain.extend(())
    first, second = writer.notes(chain, range(2), token_ids=TOKENS, block_hashes=HASHES)
    assert (first.chain_key, first.parent_key) == (keys[0], b"")
    assert (second.chain_key, second.parent_key) == (keys[1], keys[0])
    assert second.token_ids == (4, 5, 6, 7)
    assert second.block_hashes == (HASHES[2], HASHES[3])


def test_request_without_hashes_of_its_blocks_has_no_notes() -> None:
    """As without a prefix cache in a scheduler that no engine has told how to hash."""
    writer = NoteWriter(lambda: b"sha256", chunk_tokens=4, block_tokens=2)
    assert list(writer.notes(chain_of(), range(2), token_ids=TOKENS, block_hashes=[])) == []


def test_nothing_is_said_before_it_is_known_how_blocks_are_hashed() -> None:
    writer = NoteWriter(lambda: b"", chunk_tokens=4, block_tokens=2)
    assert writer.scope_of(chain_of().root) == b""
    assert list(writer.notes(chain_of(), range(2), token_ids=TOKENS, block_hashes=HASHES)) == []


def test_scopes_differ_where_chunks_or_hashes_do() -> None:
    hashing = [b"sha256 1", b"sha256 2"]
    writers = [
        NoteWriter(lambda each=each: each, chunk_tokens=4, block_tokens=2)  # type: ignore[misc]
        for each in hashing
    ]
    roots = [chain_of().root, chain_of("other").root, chain_of(salt="mine").root]
    scopes = {writer.scope_of(root) for writer in writers for root in roots}
    assert len(scopes) == 6
