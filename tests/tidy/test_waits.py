"""docs/operations.md lists every wait in the product, with its bound."""

import ast
import re
from functools import cache

import pytest

from tests.tidy.sources import ROOT, product_files, tree_of
from tests.tidy.waits import blocking_calls, named_files

TESTS = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FOLDERS = ("kvstored", "client", "engine_adapters")
THREAD = "a thread that no caller waits for"
DONE = "the result of what is done already, or a look that does not wait"
MEANS = "how a wait of the table waits: its caller has the bound"
NO_CALLER_MEETS = {
    "engine_adapters/device_copies/pinned_memory.py": MEANS,
    "engine_adapters/runner/ranks/share_gathering.py": MEANS,
    "engine_adapters/runner/restore/layer_loader.py": MEANS,
    "engine_adapters/vllm/blocks/block_filler.py": MEANS,
    "engine_adapters/vllm/blocks/projection_check.py": THREAD,
    "engine_adapters/vllm/worker_side/staged_forwards.py": THREAD,
    "kvstored/cli/operate/top_command.py": THREAD,
    "kvstored/metrics/page.py": THREAD,
    "engine_adapters/reading/arena_slices.py": MEANS,
    "engine_adapters/reading/layer_reader.py": MEANS,
    "engine_adapters/reading/section_reads.py": MEANS,
    "engine_adapters/reading/span.py": MEANS,
    "engine_adapters/vllm/events/change_follower.py": THREAD,
    "engine_adapters/vllm/scheduler_side/side.py": DONE,
    "engine_adapters/vllm/scheduler_side/step_budget.py": MEANS,
    "engine_adapters/vllm/tier_follower.py": THREAD,
    "client/kvstored_client/session/presence.py": MEANS,
    "client/kvstored_client/threads/transport.py": MEANS,
    "kvstored/c_library.py": THREAD,
    "kvstored/io/memory.py": MEANS,
    "kvstored/io/ring.py": MEANS,
    "kvstored/io/ring_engine.py": MEANS,
    "kvstored/io/thread_engine.py": MEANS,
    "kvstored/io/throttled.py": MEANS,
    "kvstored/server/calls.py": MEANS,
    "kvstored/server/held/arena_use.py": DONE,
    "kvstored/server/held/bell.py": THREAD,
    "kvstored/server/store_servicer.py": DONE,
    "kvstored/store/index/change.py": DONE,
    "kvstored/store/read/read_progress.py": MEANS,
    "kvstored/store/read/read_stream.py": MEANS,
    "kvstored/store/read/reader.py": MEANS,
    "kvstored/store/sequences/sequence_table.py": DONE,
    "kvstored/store/write/committer.py": MEANS,
    "kvstored/tiers/chunks/chunk_thread.py": MEANS,
    "kvstored/tiers/chunks/damage.py": DONE,
    "kvstored/tiers/deletions.py": DONE,
    "kvstored/tiers/hints/prefetcher.py": THREAD,
    "kvstored/tiers/scrub/scrub_device.py": THREAD,
    "kvstored/tiers/scrub/scrub_pass.py": THREAD,
}
"""Files with calls that may block and no row of their own, each with the reason."""


def waits_section() -> str:
    page = (ROOT / "docs/operations.md").read_text()
    return page.split("\n## What can make a call wait", 1)[1].split("\n## ", 1)[0]


@cache
def waiting_files() -> set[str]:
    """Files that hold a blocking call, without the stand-ins for tests of users' code."""
    return {
        str(path.relative_to(ROOT))
        for path in product_files()
        if path.relative_to(ROOT).parts[0] in FOLDERS and "testing" not in path.parts
        if next(blocking_calls(tree_of(path)), None) is not None
    }


def test_every_wait_has_a_row_or_a_reason_to_have_none() -> None:
    unlisted = waiting_files() - named_files(waits_section()) - NO_CALLER_MEETS.keys()
    assert not unlisted, "name the wait and its bound in docs/operations.md"


def test_who_has_a_row_or_never_waits_needs_no_reason() -> None:
    assert not NO_CALLER_MEETS.keys() - waiting_files()
    assert not NO_CALLER_MEETS.keys() & named_files(waits_section())


def test_rows_name_files_that_are_there() -> None:
    assert [name for name in named_files(waits_section()) if not (ROOT / name).is_file()] == []


def test_every_row_of_a_wait_says_where_and_how_long() -> None:
    tables = waits_section().split("\n### Promises", 1)[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 4, row
        assert all(cells), row


def test_every_promise_names_a_test_that_is_there() -> None:
    named = TESTS.findall(waits_section())
    assert named
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("future.result(timeout=1)", True),
        ("wait([future])", True),
        ("thread.join()", True),
        ("thread.join(CLOSE_S)", True),
        ("', '.join(NAMES)", False),
        ("path.join(first, second)", False),
        ("queue.get(timeout=1)", True),
        ("table.get(key)", False),
        ("event.set()", False),
    ],
)
def test_what_counts_as_a_wait(text: str, blocks: bool) -> None:
    assert any(blocking_calls(ast.parse(text))) is blocks
