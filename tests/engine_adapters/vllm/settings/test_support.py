from dataclasses import replace

import pytest

from engine_adapters.vllm.settings.options import RestoreMode
from engine_adapters.vllm.settings.support import (
    EngineFacts,
    device_note,
    projects_hidden,
    supported,
    transfer_notes,
    version_note,
)

FACTS = EngineFacts(
    device="cpu",
    attention=frozenset({"full"}),
    has_window=False,
    has_speculation=False,
    has_lora=False,
    has_whole_prefills=False,
    tensor_size=1,
    hidden_size=64,
    pipeline_size=1,
    context_parallel_size=1,
    jumps_positions=True,
    has_jumping_scheduler=True,
    has_hidden_hooks=True,
)


@pytest.mark.parametrize("mode", RestoreMode)
def test_plain_engine_gets_what_it_asks_for(mode: RestoreMode) -> None:
    support = supported(mode, FACTS)
    assert support.mode is mode
    assert support.reason == ""


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"device": "xpu"}, "on xpu"),
        ({"attention": frozenset({"full", "Mamba"})}, "Mamba"),
        ({"attention": frozenset({"SlidingWindow"})}, "SlidingWindow"),
        ({"has_whole_prefills": True}, "prompt as a whole"),
        ({"has_speculation": True}, "speculative"),
        ({"pipeline_size": 2}, "pipeline"),
        ({"context_parallel_size": 2}, "context"),
    ],
)
def test_what_is_not_supported_is_off_with_one_sentence(
    change: dict[str, object], word: str
) -> None:
    support = supported(RestoreMode.AUTO, replace(FACTS, **change))  # type: ignore[arg-type]
    assert support.mode is RestoreMode.OFF
    assert word in support.reason
    assert support.reason.count(".") == 1


@pytest.mark.parametrize(
    ("mode", "change", "word"),
    [
        (RestoreMode.CAKE, {"has_window": True}, "sliding window"),
        (RestoreMode.AUTO, {"has_window": True}, "sliding window"),
        (RestoreMode.HCACHE, {"has_hidden_hooks": False}, "HiddenStatesWorker"),
        (RestoreMode.HCACHE, {"has_lora": True}, "LoRA"),
        (RestoreMode.HCACHE, {"tensor_size": 3}, "as many parts as there are ranks"),
        (RestoreMode.PIC, {"has_hidden_hooks": False}, "HiddenStatesWorker"),
        (RestoreMode.PIC, {"has_lora": True}, "LoRA"),
        (RestoreMode.PIC, {"tensor_size": 3}, "as many parts as there are ranks"),
        (RestoreMode.CAKE, {"jumps_positions": False}, "CakeScheduler"),
        (RestoreMode.AUTO, {"jumps_positions": False}, "CakeScheduler"),
    ],
)
def test_what_needs_more_falls_back_to_prefix(
    mode: RestoreMode, change: dict[str, object], word: str
) -> None:
    support = supported(mode, replace(FACTS, **change))  # type: ignore[arg-type]
    assert support.mode is RestoreMode.PREFIX
    assert word in support.reason


def test_what_cannot_stop_requests_links_none() -> None:
    support = supported(RestoreMode.PIC, replace(FACTS, has_jumping_scheduler=False))
    assert support.mode is RestoreMode.HCACHE
    assert "CakeScheduler" in support.reason
    assert supported(RestoreMode.PIC, FACTS).mode is RestoreMode.PIC


@pytest.mark.parametrize(("tensor_size", "is_cut"), [(1, True), (2, True), (8, True), (3, False)])
def test_ranks_project_what_they_can_cut_in_parts(tensor_size: int, is_cut: bool) -> None:
    facts = replace(FACTS, tensor_size=tensor_size)
    assert projects_hidden(facts) is is_cut
    support = supported(RestoreMode.AUTO, facts)
    assert support.mode is RestoreMode.AUTO
    assert bool(support.reason) is not is_cut
    assert support.reason.count(".") == bool(support.reason)
    assert supported(RestoreMode.AUTO, replace(facts, has_hidden_hooks=False)).reason == ""


@pytest.mark.parametrize("mode", RestoreMode)
def test_gpu_gets_what_it_asks_for(mode: RestoreMode) -> None:
    """Bug: the connector was off on all engines but those on CPUs."""
    facts = replace(FACTS, device="cuda")
    assert supported(mode, facts).mode is mode
    assert supported(mode, facts).reason == ""
    assert projects_hidden(facts)


@pytest.mark.parametrize(("device", "is_said"), [("cpu", False), ("cuda", True), ("xpu", False)])
def test_device_that_no_engine_has_run_on_is_named(device: str, is_said: bool) -> None:
    """Once; one that the connector is off on says so itself."""
    note = device_note(device)
    assert bool(note) is is_said
    assert note == "" or f"never run on {device}" in note


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, has_lora=True),
        replace(FACTS, has_hidden_hooks=False),
    ],
)
def test_engines_that_project_nothing(facts: EngineFacts) -> None:
    assert not projects_hidden(facts)


def test_window_keeps_prefix() -> None:
    assert supported(RestoreMode.PREFIX, replace(FACTS, has_window=True)).reason == ""


@pytest.mark.parametrize(
    ("version", "is_known"),
    [("0.32.0", True), ("0.30.2+cpu", True), ("0.33.0", False), ("0.3.0", False), ("dev", False)],
)
def test_untested_version_is_named(version: str, is_known: bool) -> None:
    note = version_note(version)
    assert (note == "") is is_known
    assert is_known or version in note


def test_a_role_that_changes_nothing_is_told() -> None:
    """Bug: an engine that was only to read saved all the same, and nobody heard of it."""
    assert transfer_notes("kv_both", "recompute") == []
    for role in ("kv_consumer", "kv_producer"):
        (note,) = transfer_notes(role, "recompute")
        assert role in note
        assert "saves" in note


def test_a_policy_that_ends_requests_is_told() -> None:
    (note,) = transfer_notes("kv_both", "fail")
    assert "recompute" in note
