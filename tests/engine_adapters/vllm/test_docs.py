"""docs/vllm.md names whatever a user can set and see."""

from dataclasses import fields
from pathlib import Path

import pytest

from engine_adapters.vllm.messages.tally import COUNTERS
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode
from engine_adapters.vllm.settings.support import TESTED_VERSIONS

TEXT = (Path(__file__).parents[3] / "docs" / "vllm.md").read_text()


@pytest.mark.parametrize("name", [field.name for field in fields(AdapterOptions)])
def test_option_is_named(name: str) -> None:
    assert f"`{name}`" in TEXT


@pytest.mark.parametrize("name", [*RestoreMode, *COUNTERS])
def test_mode_and_counter_are_named(name: str) -> None:
    assert f"`{name}`" in TEXT


@pytest.mark.parametrize("version", TESTED_VERSIONS)
def test_tested_version_is_named(version: str) -> None:
    assert f"| {version}" in TEXT
