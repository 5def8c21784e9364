"""SGLang's real host pools and cache controller over a real daemon: ``make test-sglang``."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine_adapters.sglang import host_side
from tests.engine_adapters.sglang.host_side import (
    HOST_PAGES,
    PAGE,
    backed_up,
    controlled,
    make_pool,
    page_digests,
    prefetched,
)
from tests.support.daemon import DaemonProcess

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(not host_side.HAS_SGLANG, reason="needs SGLang: make test-sglang"),
]

PAGES = 5
GENERATOR = random.Random(4)
POOLS = [
    *(
        (layout, False)
        for layout in ("layer_first", "page_first", "page_first_direct", "page_head")
    ),
    *((layout, True) for layout in ("layer_first", "page_first", "page_first_direct")),
]


@pytest.fixture(scope="module", autouse=True)
def _importable() -> None:
    host_side.prepare()


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as process:
        yield process


def options(daemon: DaemonProcess, **changes: Any) -> dict[str, Any]:
    return {
        "socket": str(daemon.socket_path),
        "arena_bytes": "32MiB",
        "weights": "revision 1",
        **changes,
    }


def new_tokens() -> list[int]:
    return [GENERATOR.randrange(50_000) for _ in range(PAGES * PAGE)]


def states(pool: Any, places: Any) -> Any:
    """Copies of the states of some tokens, page by page, whatever the layout."""
    import torch

    pages = [pool.get_data_page(place, flat=True) for place in places[::PAGE].tolist()]
    return torch.stack([page.flatten().clone() for page in pages])


def test_a_clear_left_pages_of_old_weights(shared_daemon: DaemonProcess) -> None:
    tokens, pool = new_tokens(), make_pool("page_first")
    with controlled(pool, options(shared_daemon)) as controller:
        places = pool.alloc(PAGES * PAGE)
        assert backed_up(controller, places, tokens) == PAGES * PAGE
        assert prefetched(controller, "before", tokens)[1] == PAGES * PAGE
        controller.storage_backend.clear()
        assert prefetched(controller, "after", tokens)[1] == 0


def test_the_name_that_a_model_is_served_by_was_a_folder(
    shared_daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a folder of that name has other weights than those that were loaded."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.chdir(tmp_path)
    tokens, pool = new_tokens(), make_pool("page_first")
    with controlled(pool, options(shared_daemon, weights=""), model="served") as controller:
        assert backed_up(controller, pool.alloc(PAGES * PAGE), tokens) == 0


@pytest.mark.parametrize(("layout", "is_mla"), POOLS)
def test_pages_go_and_come_back(layout: str, is_mla: bool, shared_daemon: DaemonProcess) -> None:
    import torch

    tokens = new_tokens()
    pool = make_pool(layout, is_mla=is_mla)
    with controlled(pool, options(shared_daemon)) as controller:
        places = pool.alloc(PAGES * PAGE)
        written = states(pool, places)
        assert backed_up(controller, places, tokens) == PAGES * PAGE
    other = make_pool(layout, is_mla=is_mla)
    with controlled(other, options(shared_daemon)) as controller:
        everywhere = torch.arange(HOST_PAGES * PAGE)
        before = states(other, everywhere)
        found, count = prefetched(controller, "request", tokens)
        assert count == PAGES * PAGE
        assert torch.equal(states(other, found), written)
        changed = (states(other, everywhere) != before).any(dim=1).nonzero().flatten()
        assert changed.tolist() == sorted((found[::PAGE] // PAGE).tolist())


def test_other_weights_dtypes_and_layouts_are_a_miss(shared_daemon: DaemonProcess) -> None:
    tokens = new_tokens()
    pool = make_pool("page_first")
    with controlled(pool, options(shared_daemon)) as controller:
        backed_up(controller, pool.alloc(PAGES * PAGE), tokens)
    others = [
        (make_pool("page_first"), {"weights": "revision 2"}),
        (make_pool("page_first", dtype="float16"), {}),
        (make_pool("page_first", dtype="uint8"), {}),
        (make_pool("page_first", dtype="uint8"), {"kv_dtype": "fp8_e5m2"}),
        (make_pool("page_head"), {}),
        (make_pool("page_first"), {}),
    ]
    found = []
    for other, changes in others:
        with controlled(other, options(shared_daemon, **changes)) as controller:
            found.append(prefetched(controller, "request", tokens)[1])
    assert found == [0, 0, 0, 0, 0, PAGES * PAGE]


def test_weights_that_nobody_names_are_stored_nowhere(
    shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    tokens = new_tokens()
    pool = make_pool("page_first")
    with controlled(pool, options(shared_daemon, weights="")) as controller:
        assert backed_up(controller, pool.alloc(PAGES * PAGE), tokens) == 0
        assert prefetched(controller, "request", tokens)[1] == 0
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with controlled(pool, options(shared_daemon, weights=""), model=str(tmp_path)) as controller:
        assert backed_up(controller, pool.alloc(PAGES * PAGE), tokens) == PAGES * PAGE


def test_a_batch_has_as_many_pages_as_sglang_gives(shared_daemon: DaemonProcess) -> None:
    """All methods of the contract that a controller does not call one by one."""
    import torch

    pool = make_pool("page_first_direct")
    names = page_digests([GENERATOR.randrange(50_000) for _ in range(PAGE * 40)], None, PAGE)
    with controlled(pool, options(shared_daemon)) as controller:
        backend = controller.storage_backend
        places = pool.alloc(40 * PAGE)
        written = states(pool, places)
        assert not backend.exists(names[0])
        assert backend.batch_set_v1(names, places) == [True] * 40
        assert backend.exists(names[39])
        assert backend.batch_exists([*names, "0" * 64]) == 40
        assert backend.batch_exists(["0" * 64, *names]) == 0
        pool.kv_buffer.zero_()
        assert backend.batch_get_v1([*names[:20], "0" * 64], places[: 21 * PAGE]) == [
            *([True] * 20),
            False,
        ]
        assert torch.equal(states(pool, places[: 20 * PAGE]), written[:20])
        assert not states(pool, places[20 * PAGE :]).any()
        # The copying path, which no controller with ``interface_v1`` takes.
        assert backend.get(names[0]) is None
        assert backend.batch_get(names[:2]) == [None, None]
        assert not backend.set(names[0])
        assert not backend.batch_set(names[:2])


def test_injected_failures_never_give_other_bytes(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang's own injector lets a third of all calls fail, and delays the others."""
    import torch

    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.3")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.01")
    counts = set()
    pool = make_pool("page_first")
    with controlled(pool, options(shared_daemon)) as controller:
        for number in range(30):
            tokens = new_tokens()
            places = pool.alloc(PAGES * PAGE)
            written = states(pool, places)
            backed_up(controller, places, tokens)
            pool.free(places)
            found, count = prefetched(controller, f"request {number}", tokens)
            counts.add(count)
            if len(found):
                came = count // PAGE
                assert torch.equal(states(pool, found)[:came], written[:came])
                pool.free(found)
    assert {0, PAGES * PAGE} <= counts


def test_a_daemon_that_is_killed_during_a_prefetch_is_a_miss(tmp_path: Path) -> None:
    tokens = new_tokens()
    pool = make_pool("page_first")
    with DaemonProcess(tmp_path) as daemon, controlled(pool, options(daemon)) as controller:
        places = pool.alloc(PAGES * PAGE)
        assert backed_up(controller, places, tokens) == PAGES * PAGE
        assert prefetched(controller, "first", tokens)[1] == PAGES * PAGE
        assert prefetched(controller, "second", tokens, between=daemon.kill)[1] == 0
        assert prefetched(controller, "third", tokens)[1] == 0
        assert backed_up(controller, places, new_tokens()) == 0


def test_a_flipped_byte_ends_the_prefix(tmp_path: Path) -> None:
    import torch

    tokens = new_tokens()
    pool = make_pool("page_first")
    with DaemonProcess(tmp_path) as daemon, controlled(pool, options(daemon)) as controller:
        places = pool.alloc(PAGES * PAGE)
        written = states(pool, places)
        backed_up(controller, places, tokens)
        assert daemon.terminate() == 0
        flip(daemon, written[3].view(torch.uint8).numpy().tobytes())
        daemon.start()
        found, count = prefetched(controller, "request", tokens)
        assert count == 3 * PAGE
        assert torch.equal(states(pool, found)[:3], written[:3])


def flip(daemon: DaemonProcess, payload: bytes) -> None:
    """Changes one bit of what begins with a page's bytes on its device."""
    for path in daemon.devices:
        place = path.read_bytes().find(payload[:512])
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place)
                file.write(bytes([payload[0] ^ 1]))
            return
    pytest.fail("no device has the page")
