"""Layouts with a codec against a real daemon: what it refuses, and what an operator sees."""

import json
from collections.abc import Iterator

import pytest

from kvstored_client import (
    Ack,
    AppendItem,
    AsyncClient,
    Client,
    LayerState,
    LayoutRefusedError,
    NewChunk,
    Placement,
    PutReport,
    Region,
    RequestInvalidError,
    StateKind,
    StateLayout,
    StoreError,
)
from tests.support.daemon import DaemonProcess

ARENA_BYTES = 8 << 20
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.KV, 1024), LayerState(StateKind.HIDDEN, 512)),
    codec="zstd",
)
LENGTHS = (5000, 1)


@pytest.fixture
def client(shared_daemon: DaemonProcess, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A strict client in a namespace of the test's own."""
    with Client(
        shared_daemon.socket_path, arena_bytes=ARENA_BYTES, salt=request.node.name, strict=True
    ) as client:
        yield client


def region_of(client: Client, byte_count: int = 1 << 20) -> Region:
    region = client.allocate(byte_count)
    assert region is not None
    region.view[:] = bytes(range(256)) * (byte_count // 256)
    return region


def keys_of(client: Client) -> list[bytes]:
    """Two keys of the test's own."""
    return client.prefix_keys(LAYOUT, range(2 * LAYOUT.chunk_tokens))


def put(
    client: Client, placement: Placement, lengths: tuple[int, ...] = LENGTHS, *, number: int = 0
) -> PutReport:
    chunk = NewChunk(key=keys_of(client)[number], token_count=64, slice_bytes=lengths)
    return client.put(LAYOUT, [chunk], placement, ack=Ack.DURABLE)


@pytest.mark.parametrize("lengths", [(), (5000,), (5000, 0), (65_537, 1), (5000, 1, 1)])
def test_lengths_that_the_layout_does_not_allow_are_refused(
    client: Client, lengths: tuple[int, ...]
) -> None:
    placement = Placement.contiguous(region_of(client), LAYOUT)
    with pytest.raises(RequestInvalidError, match="chunk 0 cannot be stored"):
        put(client, placement, lengths)
    assert put(client, placement).stored_count == 1


def test_lengths_without_a_codec_are_refused(client: Client) -> None:
    raw = StateLayout(model="m", dtype="float32", layers=LAYOUT.layers)
    chunk = NewChunk(key=bytes(32), token_count=64, slice_bytes=LENGTHS)
    with pytest.raises(RequestInvalidError, match="its layout has no codec"):
        client.put(raw, [chunk], Placement.contiguous(region_of(client), raw))


def test_encoded_slices_are_packed_as_tightly_as_their_lengths_allow(client: Client) -> None:
    """Only the bytes that are stored need lie in the arena of a put."""
    region = region_of(client, 8192)
    source = Placement(regions=(region,), base=region.offset, layer_stride=5001)
    assert put(client, source).stored_count == 1
    target = region_of(client)
    target.view[:] = bytes(target.byte_count)
    with client.read(LAYOUT, keys_of(client)[:1], Placement.contiguous(target, LAYOUT)) as read:
        assert read.wait().resident_prefix == 1
        assert [read.slice_bytes(0, layer) for layer in (0, 1)] == [5000, 1]
    assert target.view[:5000] == region.view[:5000]
    assert target.view[LAYOUT.layer_stride] == region.view[5001]


def test_encoded_slices_are_not_cut_into_blocks(client: Client) -> None:
    region = region_of(client)
    cut = Placement(
        regions=(region,),
        base=region.offset,
        layer_stride=LAYOUT.layer_stride,
        block_offsets=(0, 4096),
    )
    with pytest.raises(RequestInvalidError, match="cannot be cut into"):
        put(client, cut, (5000, 512))
    with pytest.raises(RequestInvalidError, match="cannot be cut into"):
        client.read(LAYOUT, keys_of(client)[:1], cut)
    whole = Placement(
        regions=(region,),
        base=region.offset,
        layer_stride=LAYOUT.layer_stride,
        block_offsets=(4096,),
    )
    assert put(client, whole).stored_count == 1
    with client.read(LAYOUT, keys_of(client)[:1], whole) as read:
        assert read.wait().resident_prefix == 1


def test_rows_are_not_appended_to_encoded_chunks(client: Client) -> None:
    region = region_of(client)
    item = AppendItem(sequence="s", first_token=0, first_row=0, token_count=1)
    with pytest.raises(StoreError, match="have no rows; put them complete"):
        client.append(LAYOUT, region, 1, [item])


def test_a_sequence_of_encoded_chunks_is_cut_between_them(
    client: Client, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    placement = Placement.contiguous(region_of(client), LAYOUT)
    keys = keys_of(client)
    for number in range(2):
        assert put(client, placement, number=number).stored_count == 1
    client.sequences.create(name, LAYOUT, keys=keys)
    with pytest.raises(StoreError, match="cannot be cut"):
        client.sequences.truncate_tokens(name, 1)
    info = client.sequences.truncate_back(name, 1)
    assert info is not None
    assert info.keys == (keys[0],)


def test_slices_beyond_the_daemon_s_reads_are_refused(client: Client) -> None:
    wide = StateLayout(
        model="m",
        dtype="float32",
        layers=(LayerState(StateKind.KV, 512 * 1024),),
        codec="zstd",
    )
    with pytest.raises(LayoutRefusedError, match="a slice of this layout takes up to"):
        client.match(wide, [bytes(32)])


def test_inspect_shows_the_codec_and_the_bytes_that_are_stored(
    client: Client, shared_daemon: DaemonProcess
) -> None:
    placement = Placement.contiguous(region_of(client), LAYOUT)
    assert put(client, placement).stored_count == 1
    shown = shared_daemon.run_verb("inspect", "--json", keys_of(client)[0].hex())
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["codec"] == "zstd"
    assert [row["bytes"] for row in report["rows"]] == list(LENGTHS)
    assert report["extent_bytes"] < 4096 + sum(map(LAYOUT.slice_bytes, (0, 1)))


async def test_tasks_read_encoded_chunks_too(
    client: Client, shared_daemon: DaemonProcess, request: pytest.FixtureRequest
) -> None:
    placement = Placement.contiguous(region_of(client), LAYOUT)
    assert put(client, placement).stored_count == 1
    async with AsyncClient(
        shared_daemon.socket_path, arena_bytes=ARENA_BYTES, salt=request.node.name, strict=True
    ) as tasks:
        region = await tasks.allocate(1 << 20)
        assert region is not None
        target = Placement.contiguous(region, LAYOUT)
        async with await tasks.read(LAYOUT, keys_of(client)[:1], target) as read:
            assert (await read.wait()).resident_prefix == 1
            assert read.slice_bytes(0, 0) == 5000
