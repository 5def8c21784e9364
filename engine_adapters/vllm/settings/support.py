"""Which modes an engine's configuration allows. Pure."""

from dataclasses import dataclass

from engine_adapters.vllm.settings.options import RestoreMode

TESTED_VERSIONS = ("0.30", "0.31", "0.32")
"""Of vLLM, with engines (docs/vllm.md, "Versions")."""
SEEN_DEVICES = ("cpu",)
"""Kinds of device that engines have run on (docs/vllm.md, "What has run where")."""
COPIED_DEVICES = ("cpu", "cuda")
"""Kinds of device whose memory can be copied; vLLM calls AMD's GPUs cuda, too."""
HIDDEN_WORKER = "engine_adapters.vllm.worker.HiddenStatesWorker"
"""The worker class that hands out the inputs of layers, as a user names it."""
HIDDEN_MODES = (RestoreMode.HCACHE, RestoreMode.PIC)
"""Modes that ask for layer inputs: ``auto`` takes them where they cost less."""
ODD_INPUTS = "layer inputs of this model cannot be cut into as many parts as there are ranks"
CAKE_SCHEDULER = "engine_adapters.vllm.scheduler.CakeScheduler"
"""The scheduler class that moves a running request in any model runner, as a user names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What the engine is like, as far as a mode depends on it.

    ``attention`` are the kinds of state of its layers, "full" where each token's keys and
    values are kept for good. ``jumps_positions`` tells whether the model runner looks at a
    running request's position in every step, or the scheduler takes a detour that makes it.
    ``has_jumping_scheduler``: the scheduler class is one of ours. ``has_hidden_hooks``: the worker
    class hands out the inputs of the layers. ``has_lora``: each request may have LoRA weights of
    its own. ``has_whole_prefills``: what the model makes of a prompt needs all of it in one step.
    """

    device: str
    attention: frozenset[str]
    has_window: bool
    has_speculation: bool
    has_lora: bool
    has_whole_prefills: bool
    tensor_size: int
    hidden_size: int
    pipeline_size: int
    context_parallel_size: int
    jumps_positions: bool
    has_jumping_scheduler: bool
    has_hidden_hooks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """The mode that is used, and one sentence where it is not the one that was asked for."""

    mode: RestoreMode
    reason: str = ""


def supported(asked: RestoreMode, facts: EngineFacts) -> Support:
    """The mode for an engine; falls back to ``prefix`` or ``off`` and says why."""
    refusal = _refusal(facts)
    if refusal:
        return Support(mode=RestoreMode.OFF, reason=f"kvstored is off: {refusal}.")
    if asked in (RestoreMode.OFF, RestoreMode.PREFIX):
        return Support(mode=asked)
    if facts.has_window:
        return _prefix(asked, "layers with a sliding window keep to whole prefixes")
    if asked in HIDDEN_MODES and (why := _projects_nothing(facts)):
        return _prefix(asked, why)
    if asked is RestoreMode.PIC and (why := _links_nothing(facts)):
        reason = f"kvstored uses mode hcache, not pic: {why}."
        return Support(mode=RestoreMode.HCACHE, reason=reason)
    if asked in (RestoreMode.CAKE, RestoreMode.AUTO) and not facts.jumps_positions:
        return _prefix(
            asked,
            "this model runner moves a running request only by the scheduler class "
            f"{CAKE_SCHEDULER} (or CakeAsyncScheduler), which is not named",
        )
    if asked is RestoreMode.AUTO and facts.has_hidden_hooks and (why := _projects_nothing(facts)):
        return Support(
            mode=asked, reason=f"kvstored stores keys and values, no layer inputs: {why}."
        )
    return Support(mode=asked)


def projects_hidden(facts: EngineFacts) -> bool:
    """Whether layer inputs can be handed out, stored and projected."""
    return not _projects_nothing(facts)


def device_note(device: str) -> str:
    """One sentence about a kind of device that no engine has run on with us, else nothing."""
    if device in SEEN_DEVICES or device not in COPIED_DEVICES:
        return ""
    return (
        f"kvstored has never run on {device}, whose copies are tested on CPUs only: compare its "
        "answers with those of an engine without it before you rely on it (docs/vllm.md, What "
        "has run where)."
    )


def transfer_notes(role: str | None, failure_policy: str) -> list[str]:
    """A sentence about each part of vLLM's ``KVTransferConfig`` that is not as it has to be."""
    notes = []
    if role != "kv_both":
        notes.append(
            f"kvstored saves and restores whatever kv_role says, also with {role}: set it to "
            'kv_both, and the option "saves" to false for an engine that only reads.'
        )
    if failure_policy != "recompute":
        notes.append(
            'kvstored: set kv_load_failure_policy to "recompute", or a request ends with an error '
            "when what it loads is lost."
        )
    return notes


def version_note(version: str) -> str:
    """One sentence about a version of vLLM that nothing was tested with, else nothing."""
    if version.startswith(tuple(f"{tested}." for tested in TESTED_VERSIONS)):
        return ""
    return (
        f"kvstored was tested with vLLM {', '.join(TESTED_VERSIONS)}, and this is {version}: look "
        "at its tests (docs/vllm.md, Versions) before you rely on it."
    )


def _prefix(asked: RestoreMode, why: str) -> Support:
    return Support(
        mode=RestoreMode.PREFIX, reason=f"kvstored uses mode prefix, not {asked}: {why}."
    )


def _projects_nothing(facts: EngineFacts) -> str:
    """Why layer inputs cannot be handed out, stored and projected; empty where they can."""
    if not facts.has_hidden_hooks:
        return f"hidden states come from the worker class {HIDDEN_WORKER}, which is not named"
    if facts.has_lora:
        return "layer inputs would be projected with the LoRA weights of another request"
    return ODD_INPUTS if facts.hidden_size % facts.tensor_size else ""


def _links_nothing(facts: EngineFacts) -> str:
    if not facts.has_jumping_scheduler:
        return (
            "requests stop and jump only by the scheduler class "
            f"{CAKE_SCHEDULER} (or CakeAsyncScheduler), which is not named"
        )
    return ""


def _refusal(facts: EngineFacts) -> str:
    if facts.device not in COPIED_DEVICES:
        return f"it copies memory of CPUs and of CUDA only, and this engine is on {facts.device}"
    if facts.attention != {"full"}:
        return (
            "it stores layers of full attention in one group only, and this model has "
            f"{', '.join(sorted(facts.attention))}"
        )
    if facts.has_whole_prefills:
        return (
            "this model has to compute a prompt as a whole (vLLM keeps no prefixes of it, either)"
        )
    if facts.has_speculation:
        return "speculative decoding leaves states of rejected tokens behind"
    if facts.pipeline_size > 1:
        return "pipeline parallelism is not supported"
    if facts.context_parallel_size > 1:
        return "context parallelism is not supported"
    return ""
