"""Chunks between the store and memory of this process, some at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvstored.cli.errors import CommandError
from kvstored.cli.sequence_file.contents import FileChunk
from kvstored_client import (
    Ack,
    ArenaFullError,
    Client,
    NewChunk,
    Placement,
    PutOutcome,
    Region,
    StoreError,
)
from kvstored_contract.layout import StateLayout

BATCH_BYTES = 64 * 1024 * 1024
"""Of states that are on their way together."""
BOARDS_BYTES = 16 * 1024 * 1024
TIMEOUT_MS = 60_000
_ACCEPTED = frozenset({PutOutcome.STORED, PutOutcome.EXISTED})


def batch_chunks(layout: StateLayout) -> int:
    """Chunks that are on their way together."""
    return max(1, BATCH_BYTES // Placement.contiguous_bytes(layout, 1))


@contextmanager
def store_client(socket: Path, layout: StateLayout) -> Iterator[Client]:
    """A client with room for a batch; what the store refuses in the body is a CommandError."""
    batch_bytes = Placement.contiguous_bytes(layout, batch_chunks(layout))
    with Client(
        socket, strict=True, name="kvstored-cli", arena_bytes=batch_bytes + BOARDS_BYTES
    ) as client:
        try:
            yield client
        except StoreError as error:
            raise CommandError(str(error)) from error


def stored_chunks(
    client: Client, layout: StateLayout, keys: Sequence[bytes]
) -> Iterator[FileChunk]:
    """Reads complete chunks in their order; raises CommandError for one that is missing."""
    for part in _parts(keys, batch_chunks(layout)):
        with _region(client, layout, len(part)) as region:
            placement = Placement.contiguous(region, layout)
            with client.read(layout, part, placement, timeout_ms=TIMEOUT_MS) as read:
                read.wait()
                for index, key in enumerate(part):
                    if not read.is_resident(index):
                        raise _unread(client, key)
                    lengths = tuple(
                        read.slice_bytes(index, layer) or 0
                        if layout.is_encoded
                        else layout.slice_bytes(layer)
                        for layer in range(layout.layer_count)
                    )
                    yield FileChunk(
                        key=key,
                        token_count=layout.chunk_tokens,
                        slice_bytes=lengths,
                        states=b"".join(
                            region.view[start : start + length]
                            for start, length in zip(_starts(layout, index), lengths, strict=True)
                        ),
                    )


def _unread(client: Client, key: bytes) -> CommandError:
    """Why a chunk could not be read: a device may be slow, and the daemon may have ended."""
    found = client.changes(keys=[key])
    if found is None or all(found.are_stored):
        return CommandError(
            f"chunk {key.hex()} of the sequence is stored and was not handed out within "
            f"{TIMEOUT_MS // 1000} s; export the sequence again"
        )
    return CommandError(
        f"chunk {key.hex()} of the sequence is not stored any more; cut the sequence there, or "
        "let an engine compute it again"
    )


def store_chunks(
    client: Client, layout: StateLayout, chunks: Iterator[FileChunk]
) -> Iterator[tuple[int, int]]:
    """Stores chunks durably in their order; yields the length of each part, and how many were new.

    Raises CommandError for one that is refused.
    """
    parent, stripe = b"", 0
    size = batch_chunks(layout)
    part: list[FileChunk] = []
    for chunk in chunks:
        part.append(chunk)
        if len(part) == size:
            yield size, _store(client, layout, part, parent=parent, stripe=stripe)
            parent, stripe, part = part[-1].key, stripe + size, []
    if part:
        yield len(part), _store(client, layout, part, parent=parent, stripe=stripe)


def _store(
    client: Client, layout: StateLayout, part: Sequence[FileChunk], *, parent: bytes, stripe: int
) -> int:
    with _region(client, layout, len(part)) as region:
        for index, chunk in enumerate(part):
            at = 0
            for start, length in zip(_starts(layout, index), chunk.slice_bytes, strict=True):
                region.view[start : start + length] = chunk.states[at : at + length]
                at += length
        parents = [parent, *(chunk.key for chunk in part)]
        report = client.put(
            layout,
            [
                NewChunk(
                    key=chunk.key,
                    token_count=chunk.token_count,
                    parent_key=parents[index],
                    stripe=stripe + index,
                    slice_bytes=chunk.slice_bytes if layout.is_encoded else (),
                )
                for index, chunk in enumerate(part)
            ],
            Placement.contiguous(region, layout),
            ack=Ack.DURABLE,
            timeout_ms=TIMEOUT_MS,
        )
    refused = [result.reason for result in report.results if result.outcome not in _ACCEPTED]
    if refused:
        raise CommandError(
            f"the store refused a chunk ({refused[0].name}); what was stored before it stays, and "
            "the sequence is not made"
        )
    return report.stored_count


def _region(client: Client, layout: StateLayout, chunk_count: int) -> Region:
    try:
        region = client.allocate(Placement.contiguous_bytes(layout, chunk_count))
    except ArenaFullError as error:
        raise CommandError(f"no memory for {chunk_count} chunks: {error}") from error
    assert region is not None, "a strict client raises"
    return region


def _starts(layout: StateLayout, index: int) -> list[int]:
    """Where the slices of a chunk begin."""
    first = index * layout.layer_count
    return [(first + layer) * layout.layer_stride for layer in range(layout.layer_count)]


def _parts(keys: Sequence[bytes], size: int) -> Iterator[tuple[bytes, ...]]:
    for start in range(0, len(keys), size):
        yield tuple(keys[start : start + size])
