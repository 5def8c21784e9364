"""Look-ups of layouts that the daemon refuses, and of those that it takes."""

import pytest

from engine_adapters.vllm.chunk_keys import RequestIdentity
from engine_adapters.vllm.lookup import LOGGER, Found, Lookup
from kvstored_client import Client, LayerState, StateKind, StateLayout
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S, wait_until

TOKENS = list(range(128))


def lookup_of(client: Client, token_bytes: int) -> Lookup:
    layout = StateLayout(
        model="m", dtype="float32", layers=(LayerState(StateKind.KV, token_bytes),), chunk_tokens=64
    )
    return Lookup(client, [layout], fingerprint="m", timeout_s=PATIENCE_S, lease_ms=1000)


def ask(lookup: Lookup) -> Found:
    found = lookup.ask(RequestIdentity(), TOKENS).result(PATIENCE_S)
    assert found is not None
    return found


def test_refused_layout_is_told_at_start_and_names_no_key(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: each chunk was copied for a save that could only fail."""
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    client = Client(daemon.socket_path, arena_bytes="1MiB")
    lookup = lookup_of(client, 256 * 1024)
    wait_until(lambda: bool(told))
    assert ask(lookup) == Found()
    assert ask(lookup) == Found()
    (sentence,) = told
    assert "use a smaller chunk_tokens, or give the daemon a larger slab_bytes" in sentence
    lookup.close()


def test_layout_that_is_taken_has_keys(daemon: DaemonProcess) -> None:
    client = Client(daemon.socket_path, arena_bytes="1MiB")
    lookup = lookup_of(client, 1024)
    found = ask(lookup)
    assert found.chain is not None
    assert len(found.chain.extend(())) == 2
    lookup.close()


def test_chain_of_another_daemon_does_not_save_what_this_one_refuses(
    daemon: DaemonProcess,
) -> None:
    """A request that was asked for before the daemon was replaced, and is asked for again."""
    client = Client(daemon.socket_path, arena_bytes="1MiB")
    chain = ask(lookup_of(client, 1024)).chain
    assert chain is not None
    refused = lookup_of(client, 256 * 1024)
    found = refused.ask(RequestIdentity(), TOKENS, chain=chain).result(PATIENCE_S)
    assert found == Found()
    refused.close()
