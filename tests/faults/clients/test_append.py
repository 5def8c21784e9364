"""What a hostile client does with appends: refused with a reason, bounded, and given back.

Fails when ``fields.snapshot_range`` accepts a snapshot that ends behind the arena (seen: the daemon
dies), when an item may name rows past the snapshot (seen: OK), when open frames are not counted
against OPEN_SHARE_MAX (seen: 8 instead of 4), and when ``SessionTable.close`` does not end a
session's sequences (seen: frames that never return).
"""

import subprocess
import sys
import threading
import time

import grpc
import pytest

from kvstored_client import AppendItem, Client, Placement
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.limits import (
    CHUNKS_PER_CALL_MAX,
    ITEMS_PER_APPEND_MAX,
    ROWS_PER_APPEND_MAX,
)
from kvstored_contract.reasons import Reason
from kvstored_contract.snapshot import SnapshotGeometry
from kvstored_protos.v1 import sequence_pb2, store_pb2
from tests.faults.clients.raw_session import ARENA_BYTES, RawSession
from tests.faults.clients.requests import LAYOUT, STORE, must, register
from tests.faults.clients.witness import Witness
from tests.support.daemon import MIB, DaemonProcess
from tests.support.scale import Scale, at
from tests.support.waiting import wait_until

SEQUENCE = "/kvstored.v1.SequenceService/"
TOKENS = LAYOUT.chunk_tokens
ODD = StateLayout(model="odd", dtype="f", layers=(LayerState(StateKind.KV, 3),))
BIG = StateLayout(
    model="big", dtype="f", layers=(LayerState(StateKind.HIDDEN, 256 * 1024),), chunk_tokens=16
)
"""A frame of a bit more than 4 MiB for each sequence."""


def create(session: RawSession, name: str, *, layout: StateLayout = LAYOUT) -> None:
    request = sequence_pb2.CreateSequenceRequest(
        name=name, layout_id=layout.layout_id, ephemeral=True
    )
    must(session.call(SEQUENCE + "Create", request.SerializeToString()))


def item(**changes: object) -> store_pb2.AppendItem:
    fields: dict[str, object] = {"sequence": "s", "token_count": 4}
    return store_pb2.AppendItem(**{**fields, **changes})  # type: ignore[arg-type]


def request(*items: store_pb2.AppendItem, **changes: object) -> store_pb2.AppendRequest:
    fields: dict[str, object] = {"layout_id": LAYOUT.layout_id, "row_count": 4}
    return store_pb2.AppendRequest(items=items or [item()], **{**fields, **changes})  # type: ignore[arg-type]


SNAPSHOT_BYTES = SnapshotGeometry(LAYOUT, 4).byte_count
REFUSED = [
    (request(item(first_row=1)), Reason.FIELD_INVALID),
    (request(item(first_row=2**32 - 1)), Reason.FIELD_INVALID),
    (request(item(token_count=0)), Reason.FIELD_INVALID),
    (request(item(token_count=5)), Reason.FIELD_INVALID),
    (request(item(token_count=2**32 - 1)), Reason.FIELD_INVALID),
    (request(item(first_token=2**64 - 1)), Reason.FIELD_INVALID),
    (request(item(first_token=TOKENS - 4)), Reason.FIELD_INVALID),
    (request(item(keys=[b"k" * 32])), Reason.FIELD_INVALID),
    (request(item(first_token=TOKENS - 4, keys=[b"k" * 31])), Reason.FIELD_INVALID),
    (request(item(sequence="")), Reason.FIELD_INVALID),
    (request(item(), item()), Reason.FIELD_INVALID),
    (request(row_count=0), Reason.FIELD_INVALID),
    (request(row_count=ROWS_PER_APPEND_MAX + 1), Reason.FIELD_INVALID),
    (request(row_count=ROWS_PER_APPEND_MAX), Reason.ARENA_RANGE),
    (request(snapshot_offset=ARENA_BYTES - SNAPSHOT_BYTES + 1), Reason.ARENA_RANGE),
    (request(snapshot_offset=2**64 - 1), Reason.ARENA_RANGE),
    (request(layout_id=b""), Reason.LAYOUT_UNKNOWN),
    (request(layout_id=ODD.layout_id), Reason.LAYOUT_INVALID),
    (request(*[item()] * (ITEMS_PER_APPEND_MAX + 1)), Reason.LIMIT_EXCEEDED),
    (request(item(keys=[b"k" * 32] * (CHUNKS_PER_CALL_MAX + 1))), Reason.LIMIT_EXCEEDED),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_nonsense_is_refused_and_changes_nothing(served: DaemonProcess, number: int) -> None:
    body, reason = REFUSED[number]
    with RawSession(served.socket_path) as session, Witness(served.socket_path):
        register(session)
        register(session, ODD)
        create(session, "s")
        answer = session.call(STORE + "Append", body.SerializeToString())
        assert answer.reason == reason.name, answer
        assert answer.details
        state = sequence_pb2.SequenceRequest(name="s").SerializeToString()
        found = must(session.call(SEQUENCE + "Get", state))
        assert sequence_pb2.Sequence.FromString(found.body).staged_tokens == 0
    assert "Traceback" not in served.log


def test_an_append_without_items_is_refused(served: DaemonProcess) -> None:
    body = store_pb2.AppendRequest(layout_id=LAYOUT.layout_id, row_count=1)
    with RawSession(served.socket_path) as session:
        register(session)
        answer = session.call(STORE + "Append", body.SerializeToString())
        assert answer.status is grpc.StatusCode.INVALID_ARGUMENT


def append(client: Client, name: str, *, layout: StateLayout = BIG) -> Reason:
    geometry = SnapshotGeometry(layout, 1)
    region = client.allocate(geometry.byte_count)
    assert region is not None
    with region:
        step = AppendItem(sequence=name, first_token=0, first_row=0, token_count=1)
        return client.append(layout, region, 1, [step]).results[0].reason


def used_bytes(client: Client) -> int:
    return client.admin.stats().dram_used_bytes


def test_open_tails_cannot_fill_dram(served: DaemonProcess) -> None:
    """The tier has 8 slabs; half of it is for open frames, the rest for everybody's chunks."""
    with Witness(served.socket_path):
        # From here on its chunks are in DRAM.
        pass
    with (
        Client(served.socket_path, arena_bytes="4MiB", strict=True) as watcher,
        Client(served.socket_path, arena_bytes="4MiB", strict=True) as greedy,
    ):
        for number in range(40):
            assert greedy.sequences.create(f"s{number}", BIG, ephemeral=True)
        before = used_bytes(watcher)
        outcomes = [append(greedy, f"s{number}") for number in range(40)]
        assert set(outcomes) == {Reason.UNSPECIFIED, Reason.DRAM_FULL}
        # A frame takes a slab of 8 MiB nearly for itself.
        assert outcomes.count(Reason.UNSPECIFIED) == 4
        with Witness(served.socket_path):
            time.sleep(0.2)
        greedy.close()
        wait_until(lambda: used_bytes(watcher) <= before)


DOOMED = """
import sys, time
from kvstored_client import AppendItem, Client, LayerState, SnapshotGeometry, StateKind, StateLayout

layout = StateLayout(
    model="big", dtype="f", layers=(LayerState(StateKind.HIDDEN, 256 * 1024),), chunk_tokens=16
)
client = Client(sys.argv[1], arena_bytes="4MiB", strict=True)
region = client.allocate(SnapshotGeometry(layout, 1).byte_count)
for name, ephemeral in (("doomed-named", False), ("doomed-ephemeral", True)):
    client.sequences.create(name, layout, ephemeral=ephemeral)
    item = AppendItem(sequence=name, first_token=0, first_row=0, token_count=1)
    assert client.append(layout, region, 1, [item]).results[0].is_taken
print("ready", flush=True)
time.sleep(600)
"""


def test_a_killed_clients_frames_are_back(served: DaemonProcess) -> None:
    """How soon is looked at where clients are killed at every call: ``tests/faults/kill``."""
    with Client(served.socket_path, arena_bytes="4MiB", strict=True) as watcher:
        before = used_bytes(watcher)
        doomed = subprocess.Popen(
            [sys.executable, "-c", DOOMED, str(served.socket_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "ready\n"
        assert used_bytes(watcher) - before > 8 * MIB
        doomed.kill()
        wait_until(lambda: used_bytes(watcher) <= before)
        doomed.wait()
        info = watcher.sequences.get("doomed-named")
        assert info is not None
        assert (info.staged_tokens, info.tail_tokens) == (0, 0)
        assert watcher.sequences.get("doomed-ephemeral") is None
        watcher.sequences.delete("doomed-named")


@at(Scale.QUICK)
def test_who_writes_to_its_arena_meanwhile_harms_no_checksum(daemon: DaemonProcess) -> None:
    stop = threading.Event()
    keys = [b"scribble".ljust(30, b".") + bytes([number, 0]) for number in range(32)]
    with Client(daemon.socket_path, arena_bytes="4MiB", strict=True) as client:
        region = client.allocate(SnapshotGeometry(LAYOUT, TOKENS).byte_count)
        assert region is not None
        client.sequences.create("scribbled", LAYOUT, ephemeral=True)

        def scribble() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                region.view[:] = bytes([number % 256]) * region.byte_count

        thread = threading.Thread(target=scribble)
        thread.start()
        try:
            for number, key in enumerate(keys):
                step = AppendItem(
                    sequence="scribbled",
                    first_token=number * TOKENS,
                    first_row=0,
                    token_count=TOKENS,
                    keys=[key],
                )
                assert client.append(LAYOUT, region, TOKENS, [step]).results[0].is_taken
        finally:
            stop.set()
            thread.join()
        client.sequences.flush("scribbled", b"", expected_tokens=len(keys) * TOKENS)
    # DRAM is trusted: only what comes from a device is compared with its sums.
    daemon.restart()
    with Client(daemon.socket_path, arena_bytes="4MiB", strict=True) as client:
        target = client.allocate(Placement.contiguous_bytes(LAYOUT, 1))
        assert target is not None
        for key in keys:
            with client.read(LAYOUT, [key], Placement.contiguous(target, LAYOUT)) as read:
                assert read.wait().resident == (True,)
