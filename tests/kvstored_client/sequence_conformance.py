"""Sequences of every store: the same tests for a real daemon and for one in memory."""

from collections.abc import Callable

import pytest

from kvstored_client import (
    AppendItem,
    AppendReport,
    Client,
    LayerState,
    LayoutRefusedError,
    Placement,
    RequestInvalidError,
    SequenceConflictError,
    SequenceExistsError,
    SequenceInfo,
    SequenceUnknownError,
    SnapshotGeometry,
    StateKind,
    StateLayout,
)
from kvstored_client.errors import StoreError
from kvstored_contract.reasons import Reason
from tests.support.rows import MIXED, Rows
from tests.support.waiting import wait_until

TOKENS = [number * 41 % 512 for number in range(100)]
Connect = Callable[..., Client]


def rows_of(client: Client) -> Rows:
    assert client.available()
    return Rows(namespace=client.namespace)


def append(client: Client, parts: dict[str, range], *, states: bytes | None = None) -> AppendReport:
    """Appends tokens at these positions, all in one step; ``states`` are others than theirs."""
    rows = rows_of(client)
    step = [TOKENS[position] for part in parts.values() for position in part]
    snapshot = rows.snapshot(step)
    items, row = [], 0
    for name, part in parts.items():
        keys = rows.keys(TOKENS)[part.start // 16 : part.stop // 16]
        items.append(
            AppendItem(
                sequence=name,
                first_token=part.start,
                first_row=row,
                token_count=len(part),
                keys=keys,
            )
        )
        row += len(part)
    region = client.allocate(len(snapshot))
    assert region is not None
    with region:
        region.view[:] = snapshot if states is None else states * len(snapshot)
        return client.append(MIXED, region, len(step), items)


def lengths(report: AppendReport) -> list[tuple[int, Reason]]:
    return [(result.length_tokens, result.reason) for result in report.results]


def flush(client: Client, name: str, length: int) -> SequenceInfo:
    info = client.sequences.flush(
        name, rows_of(client).tail_key(TOKENS[:length]), expected_tokens=length
    )
    assert info is not None
    return info


def known(client: Client, name: str) -> SequenceInfo:
    info = client.sequences.get(name)
    assert info is not None
    return info


def check_bytes(client: Client, length: int, *, tail: bool = False) -> None:
    """The chunks of so many tokens hold the states of these tokens."""
    rows = rows_of(client)
    keys = rows.keys(TOKENS[:length])
    parts = [TOKENS[index * 16 :][:16] for index in range(len(keys))]
    if tail:
        keys.append(rows.tail_key(TOKENS[:length]))
        parts.append(TOKENS[length - length % 16 : length])
    with client.allocate(Placement.contiguous_bytes(MIXED, len(keys))) as region:  # type: ignore[union-attr]
        with client.read(MIXED, keys, Placement.contiguous(region, MIXED)) as read:
            assert read.wait().resident_prefix == len(keys)
        for chunk, tokens in enumerate(parts):
            for layer, expected in enumerate(rows.slices(tokens)):
                start = (chunk * MIXED.layer_count + layer) * MIXED.layer_stride
                assert bytes(region.view[start : start + len(expected)]) == expected


class SequenceConformance:
    """``name`` is one that no other test has."""

    def test_a_sequence_is_made_once(self, client: Client, name: str) -> None:
        info = client.sequences.create(name, MIXED)
        assert info is not None
        assert info == SequenceInfo(name=name, layout_id=MIXED.layout_id, keys=(), dropped_chunks=0)
        with pytest.raises(SequenceExistsError):
            client.sequences.create(name, MIXED)
        with pytest.raises(SequenceExistsError):
            client.sequences.create(name, MIXED, ephemeral=True)
        assert client.sequences.get(name) == info
        assert name in client.sequences.list()
        assert client.sequences.delete(name)
        assert not client.sequences.delete(name)
        assert client.sequences.get(name) is None
        assert name not in client.sequences.list()

    def test_what_there_is_not(self, client: Client, connect: Connect, name: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: client.sequences.append(name, [bytes(32)], expected_chunks=0),
            lambda: client.sequences.fork(name, f"{name}2"),
            lambda: client.sequences.truncate_front(name, 1),
            lambda: client.sequences.truncate_back(name, 1),
            lambda: client.sequences.truncate_tokens(name, 1),
            lambda: client.sequences.flush(name, b"", expected_tokens=0),
        ]
        for call in calls:
            with pytest.raises(SequenceUnknownError):
                call()
        assert lengths(append(client, {name: range(3)})) == [(0, Reason.SEQUENCE_UNKNOWN)]
        lenient = connect(strict=False)
        assert lenient.sequences.truncate_back(name, 1) is None
        assert lenient.counters["sequence_truncate_back_failed_SequenceUnknown"] == 1

    def test_names_and_keys_that_cannot_be(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        calls: list[Callable[[], object]] = [
            lambda: client.sequences.create("", MIXED),
            lambda: client.sequences.get("n" * 201),
            lambda: client.sequences.create(f"{name}2", MIXED, keys=[b"short"]),
            lambda: client.sequences.append(name, [], expected_chunks=0),
            lambda: client.sequences.append(name, [b"short"], expected_chunks=0),
            lambda: client.sequences.flush(name, b"short", expected_tokens=0),
        ]
        for call in calls:
            with pytest.raises(RequestInvalidError):
                call()

    def test_keys_of_stored_chunks(self, client: Client, name: str) -> None:
        keys = [bytes([index]) * 32 for index in range(6)]
        info = client.sequences.create(name, MIXED, keys=keys[:2])
        assert info is not None
        assert (info.keys, info.staged_tokens, info.durable_tokens) == (tuple(keys[:2]), 32, 32)
        info = client.sequences.append(name, keys[2:], expected_chunks=2)
        assert info is not None
        assert (info.keys, info.staged_tokens) == (tuple(keys), 96)
        with pytest.raises(SequenceConflictError):
            client.sequences.append(name, keys, expected_chunks=2)

    def test_forks_and_cuts_of_complete_chunks(self, client: Client, name: str) -> None:
        keys = [bytes([index]) * 32 for index in range(6)]
        client.sequences.create(name, MIXED, keys=keys)
        fork = client.sequences.fork(name, f"{name}2", keep_chunks=4)
        assert fork is not None
        assert (fork.name, fork.keys, fork.dropped_chunks) == (f"{name}2", tuple(keys[:4]), 0)
        front = client.sequences.truncate_front(name, 2)
        assert front is not None
        assert (front.keys, front.dropped_chunks, front.staged_tokens) == (tuple(keys[2:]), 2, 64)
        back = client.sequences.truncate_back(name, 3)
        assert back is not None
        assert (back.keys, back.dropped_chunks) == ((keys[2],), 2)
        assert client.sequences.truncate_back(name, 0) == back
        assert known(client, f"{name}2").keys == tuple(keys[:4])
        calls: list[Callable[[], object]] = [
            lambda: client.sequences.truncate_front(name, 2),
            lambda: client.sequences.truncate_back(name, 2),
            lambda: client.sequences.fork(name, f"{name}3", keep_chunks=2),
            lambda: client.sequences.truncate_tokens(name, 17),
        ]
        for call in calls:
            with pytest.raises(SequenceConflictError):
                call()
        with pytest.raises(SequenceExistsError):
            client.sequences.fork(name, f"{name}2")

    def test_rows_become_chunks(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        done = 0
        for count in (5, 20, 7, 1, 48):
            (result,) = append(client, {name: range(done, done + count)}).results
            done += count
            assert result.is_taken
            assert result.length_tokens == done
        keys = rows_of(client).keys(TOKENS[:done])
        check_bytes(client, done)
        wait_until(lambda: known(client, name).keys == tuple(keys))
        info = known(client, name)
        assert (info.staged_tokens, info.tail_tokens) == (81, 1)
        assert (info.durable_tokens, info.tail_key, info.is_stopped) == (80, b"", False)
        assert client.admin.inspect(keys[2].hex()).parent_key == keys[1]

    def test_one_step_of_many_sequences(self, client: Client, name: str) -> None:
        first, second = f"{name}1", f"{name}2"
        client.sequences.create(first, MIXED)
        client.sequences.create(second, MIXED, ephemeral=True)
        report = append(client, {first: range(16), "nobody's": range(2), second: range(30)})
        assert report.is_served
        assert lengths(report) == [
            (16, Reason.UNSPECIFIED),
            (0, Reason.SEQUENCE_UNKNOWN),
            (30, Reason.UNSPECIFIED),
        ]
        report = append(client, {second: range(29, 31), first: range(17, 18)})
        assert lengths(report) == [
            (30, Reason.SEQUENCE_CONFLICT),
            (16, Reason.SEQUENCE_CONFLICT),
        ]
        check_bytes(client, 16)

    def test_a_chunk_that_is_there_is_kept(self, client: Client, name: str) -> None:
        first, second = f"{name}1", f"{name}2"
        for each, states in ((first, None), (second, b"o")):
            client.sequences.create(each, MIXED)
            report = append(client, {each: range(40)}, states=states)
            assert lengths(report) == [(40, Reason.UNSPECIFIED)]
        check_bytes(client, 32)

    def test_appends_that_cannot_be(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        item = AppendItem(sequence=name, first_token=0, first_row=0, token_count=2)
        region = client.allocate(SnapshotGeometry(MIXED, 20).byte_count)
        assert region is not None
        for items in (
            [item, item],
            [AppendItem(sequence=name, first_token=0, first_row=1, token_count=2)],
            [AppendItem(sequence=name, first_token=15, first_row=0, token_count=1)],
            [
                AppendItem(
                    sequence=name, first_token=0, first_row=0, token_count=1, keys=[bytes(32)]
                )
            ],
        ):
            with pytest.raises(RequestInvalidError):
                client.append(MIXED, region, 2, items)
        assert known(client, name).staged_tokens == 0

    def test_rows_of_another_layout_are_refused(self, client: Client, name: str) -> None:
        other = StateLayout(model="o", dtype="f", layers=MIXED.layers, chunk_tokens=16)
        client.sequences.create(name, other)
        assert lengths(append(client, {name: range(3)})) == [(0, Reason.SEQUENCE_CONFLICT)]

    def test_a_flushed_tail_stays_open(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(21)})
        info = flush(client, name, 21)
        tail_key = rows_of(client).tail_key(TOKENS[:21])
        assert (info.tail_key, info.durable_tail_tokens, info.tail_tokens) == (tail_key, 5, 5)
        assert (info.staged_tokens, info.durable_tokens) == (21, 21)
        check_bytes(client, 21, tail=True)
        append(client, {name: range(21, 25)})
        info = known(client, name)
        assert (info.staged_tokens, info.durable_tokens, info.durable_tail_tokens) == (25, 21, 5)
        append(client, {name: range(25, 40)})
        info = flush(client, name, 40)
        assert (len(info.keys), info.tail_tokens, info.durable_tail_tokens) == (2, 8, 8)
        check_bytes(client, 40, tail=True)

    def test_flushes_of_what_it_is_not(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(17)})
        for tail_key, expected_tokens in ((bytes(32), 16), (b"", 17)):
            with pytest.raises(SequenceConflictError):
                client.sequences.flush(name, tail_key, expected_tokens=expected_tokens)
        with pytest.raises(SequenceConflictError):
            client.sequences.append(name, [bytes(32)], expected_chunks=1)
        assert known(client, name).staged_tokens == 17

    def test_a_flush_of_complete_chunks_needs_no_key(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(32)})
        info = flush(client, name, 32)
        assert (len(info.keys), info.durable_tokens, info.tail_key) == (2, 32, b"")

    @pytest.mark.parametrize("drop", [1, 4, 5, 6, 21, 36, 37])
    def test_tokens_are_dropped_and_others_appended(
        self, client: Client, name: str, drop: int
    ) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(37)})
        info = client.sequences.truncate_tokens(name, drop)
        assert info is not None
        left = 37 - drop
        assert (info.staged_tokens, info.tail_tokens) == (left, left % 16)
        assert lengths(append(client, {name: range(left, 50)})) == [(50, Reason.UNSPECIFIED)]
        flush(client, name, 50)
        check_bytes(client, 50, tail=True)

    def test_what_was_flushed_is_forgotten_where_it_is_cut(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(25)})
        flush(client, name, 25)
        longer = client.sequences.truncate_tokens(name, 0)
        assert longer is not None
        assert longer.durable_tail_tokens == 9
        shorter = client.sequences.truncate_tokens(name, 1)
        assert shorter is not None
        assert (shorter.tail_key, shorter.tail_tokens, shorter.durable_tokens) == (b"", 8, 16)

    def test_a_chunk_that_is_cut_must_be_stored(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED, keys=[b"never stored" + bytes(20)])
        with pytest.raises(StoreError) as caught:
            client.sequences.truncate_tokens(name, 1)
        assert caught.value.reason is Reason.NOT_STORED
        assert known(client, name).staged_tokens == 16

    def test_chunks_without_rows_are_not_cut(self, client: Client, name: str) -> None:
        odd = StateLayout(
            model="odd", dtype="f", layers=(LayerState(StateKind.KV, 7),), chunk_tokens=16
        )
        client.sequences.create(name, odd, keys=[bytes(32)])
        with pytest.raises(LayoutRefusedError):
            client.sequences.truncate_tokens(name, 1)

    def test_a_fork_has_a_tail_of_its_own(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(20)})
        fork = client.sequences.fork(name, f"{name}2")
        assert fork is not None
        assert (fork.staged_tokens, fork.tail_tokens) == (20, 4)
        append(client, {name: range(20, 30)})
        assert known(client, f"{name}2").staged_tokens == 20
        append(client, {f"{name}2": range(20, 32)})
        check_bytes(client, 32)
        assert known(client, name).staged_tokens == 30
        short = client.sequences.fork(name, f"{name}3", keep_chunks=1)
        assert short is not None
        assert (short.staged_tokens, short.tail_tokens) == (16, 0)

    def test_a_front_is_dropped_under_an_open_tail(self, client: Client, name: str) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(40)})
        flush(client, name, 40)
        info = client.sequences.truncate_front(name, 1)
        assert info is not None
        assert (info.staged_tokens, info.tail_tokens, info.dropped_chunks) == (24, 8, 1)
        assert info.durable_tail_tokens == 8
        back = client.sequences.truncate_back(name, 1)
        assert back is not None
        assert (back.staged_tokens, back.tail_tokens, back.tail_key) == (0, 0, b"")

    def test_an_ephemeral_sequence_is_its_sessions_own(
        self, client: Client, connect: Connect, name: str
    ) -> None:
        info = client.sequences.create(name, MIXED, ephemeral=True)
        assert info is not None
        assert info.is_ephemeral
        assert name not in client.sequences.list()
        other = connect()
        assert other.sequences.get(name) is None
        assert other.sequences.create(name, MIXED) is not None
        append(client, {name: range(20)})
        flush(client, name, 20)
        assert known(other, name).staged_tokens == 0
        fork = client.sequences.fork(name, f"{name}2")
        assert fork is not None
        assert fork.is_ephemeral
        client.close()
        assert known(other, name).staged_tokens == 0
        assert other.sequences.get(f"{name}2") is None
        # Its tail, too, stays without it.
        check_bytes(other, 20, tail=True)

    def test_an_open_tail_goes_with_its_session(
        self, client: Client, connect: Connect, name: str
    ) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(20)})
        flush(client, name, 20)
        append(client, {name: range(20, 30)})
        other = connect()
        assert known(other, name).staged_tokens == 30
        client.close()
        wait_until(lambda: known(other, name).staged_tokens == 20)
        assert lengths(append(other, {name: range(20, 34)})) == [(34, Reason.UNSPECIFIED)]
        check_bytes(other, 34)

    def test_a_flushed_tail_that_is_lost_ends_the_sequence(
        self, client: Client, connect: Connect, name: str
    ) -> None:
        client.sequences.create(name, MIXED)
        append(client, {name: range(20)})
        info = flush(client, name, 20)
        client.close()
        other = connect()
        wait_until(lambda: known(other, name).staged_tokens == 20)
        assert other.delete([info.tail_key]) == 1
        wait_until(lambda: other.match(MIXED, [info.tail_key]).chunk_count == 0)
        report = append(other, {name: range(20, 22)})
        assert lengths(report) == [(16, Reason.NOT_STORED)]
        assert known(other, name).is_stopped
        assert lengths(append(other, {name: range(16, 22)})) == [(22, Reason.UNSPECIFIED)]
        assert not known(other, name).is_stopped
