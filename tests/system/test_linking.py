"""Entries of one process that another one links in another order, with a real daemon."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from engine_adapters.link.errors import ExpiredError
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EntryName, PromptPart
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Placement
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.link.lab import LinkLab, after_sink, entry, new
from tests.engine_adapters.runner.link.reference import DenseLlama, ReferencePart
from tests.support.daemon import DaemonProcess
from tests.support.waiting import wait_until

CHUNK_TOKENS = 4
NEW_TOKENS = 3
METHODS = ["naive", "attnlink-6", "cacheblend-20", "query-6", "split-8"]
MADE = [entry(13, 1), entry(10, 2), after_sink(9, 3), after_sink(14, 4)]
LINKED = [new(2, 7), MADE[3], MADE[1], MADE[0], MADE[3], MADE[2], new(5)]
"""In another order than they were made, and one of them twice."""
LINKED_TOKENS = sum(len(part.token_ids) for part in LINKED)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> LinkLab:
    directory: Path = tmp_path_factory.mktemp("model")
    theirs = write_llama(directory, num_key_value_heads=2)
    model = Model.from_directory(directory)
    states = StateFormat.of_model(model, "linked", chunk_tokens=CHUNK_TOKENS)
    return LinkLab(model, states, DenseLlama(theirs))


@contextmanager
def runner(lab: LinkLab, daemon: DaemonProcess, salt: str) -> Iterator[tuple[Client, LinkRunner]]:
    """An engine of its own, as of another process."""
    with (
        Client(daemon.socket_path, arena_bytes="16MiB", salt=salt) as client,
        LinkRunner(lab.model, client, lab.state_format, cache_tokens=200) as linking,
    ):
        assert client.available()
        yield client, linking


def made(lab: LinkLab, daemon: DaemonProcess, salt: str) -> dict[ReferencePart, EntryName]:
    names: dict[ReferencePart, EntryName] = {}
    with runner(lab, daemon, salt) as (_, linking):
        for part in MADE:
            (entry_id,) = linking.generate_context_cache([part.token_ids], sink_ids=part.sink_ids)
            names[part] = EntryName(entry_id)
    return names


def check(
    lab: LinkLab, linking: LinkRunner, names: dict[ReferencePart, EntryName], method: str
) -> Completion:
    """The tokens are those of the reference, one after the other."""
    parts: list[PromptPart] = [names.get(part, part.token_ids) for part in LINKED]
    completion = linking.link(LinkRequest(parts=parts, new_tokens_max=NEW_TOKENS, method=method))
    expected: list[int] = []
    for _ in range(NEW_TOKENS):
        expected.append(int(lab.expected(LINKED, method, expected).argmax()))
    assert list(completion.generated_ids) == expected
    return completion


def keys_of(lab: LinkLab, client: Client, part: ReferencePart) -> Sequence[bytes]:
    """Of its complete chunks."""
    return client.prefix_keys(lab.state_format.layout, [*part.sink_ids, *part.token_ids])


@pytest.mark.parametrize("method", METHODS)
def test_another_process_links_what_is_there_and_computes_what_is_gone(
    shared_daemon: DaemonProcess, lab: LinkLab, method: str
) -> None:
    names = made(lab, shared_daemon, f"linking {method}")
    with runner(lab, shared_daemon, f"linking {method}") as (client, linking):
        whole = check(lab, linking, names, method)
        assert whole.restore.dram_bytes > 0
        assert whole.restore.restored_tokens + whole.computed_tokens == (
            LINKED_TOKENS + NEW_TOKENS - 1
        )
        assert client.delete([keys_of(lab, client, MADE[1])[0], keys_of(lab, client, MADE[3])[1]])
        less = check(lab, linking, names, method)
        assert less.restore.restored_tokens < whole.restore.restored_tokens
        for part in MADE:
            client.delete(keys_of(lab, client, part))
        check(lab, linking, names, method)
        # Nothing is held any more, once the readers have let go of it.
        wait_until(lambda: client.admin.stats().lease_count == 0)


def test_a_namespace_cannot_name_what_another_one_has(
    shared_daemon: DaemonProcess, lab: LinkLab
) -> None:
    names = made(lab, shared_daemon, "linking mine")
    with runner(lab, shared_daemon, "linking theirs") as (_, linking):
        assert linking.entries.list() == []
        for name in names.values():
            with pytest.raises(ExpiredError):
                linking.link(LinkRequest(parts=[name, [1]], new_tokens_max=1))
        # The same tokens have another id there, and ending that ends nobody else's.
        (theirs,) = linking.generate_context_cache([MADE[0].token_ids])
        assert theirs != names[MADE[0]].entry_id
        assert linking.entries.expire(theirs)
    with runner(lab, shared_daemon, "linking mine") as (_, linking):
        assert {one.entry_id for one in linking.entries.list()} == {
            name.entry_id for name in names.values()
        }


def test_a_cold_start_and_damaged_bytes(daemon: DaemonProcess, lab: LinkLab) -> None:
    names = made(lab, daemon, "linking")
    with runner(lab, daemon, "linking") as (client, _):
        layout = lab.state_format.layout
        region = client.allocate(Placement.contiguous_bytes(layout, 1))
        assert region is not None
        with (
            region,
            client.read(
                layout, keys_of(lab, client, MADE[0])[:1], Placement.contiguous(region, layout)
            ) as read,
        ):
            read.wait()
            stored = region.numpy(np.uint8, (layout.slice_bytes(0),)).tobytes()
    assert daemon.terminate() == 0
    daemon.start()
    with runner(lab, daemon, "linking") as (_, linking):
        whole = check(lab, linking, names, "attnlink-6")
        assert whole.restore.device_bytes > 0
        assert whole.restore.dram_bytes == 0
    assert daemon.terminate() == 0
    flip(daemon.devices, stored)
    daemon.start()
    with runner(lab, daemon, "linking") as (_, linking):
        less = check(lab, linking, names, "attnlink-6")
        assert less.restore.restored_tokens < whole.restore.restored_tokens


def flip(devices: Sequence[Path], stored: bytes) -> None:
    """Changes a bit wherever these bytes lie."""
    places = [(path, path.read_bytes().find(stored)) for path in devices]
    found = [(path, place) for path, place in places if place >= 0]
    assert found
    for path, place in found:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([stored[0] ^ 1]))
