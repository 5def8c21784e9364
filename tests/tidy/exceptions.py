"""What breaks a rule today. These lists only shrink: nothing is added to them.

Classes are named with their modules, counts are those of today.
"""

MEMBERS = {
    "engine_adapters.reading.span.Span": 18,
    "engine_adapters.reading.span_reader.SpanReader": 17,
    "benchmarks.restore.measured.found.Found": 13,
    "engine_adapters.vllm.connector.KvstoredConnector": 25,
    "kvstored.store.sequences.sequence_state.SequenceState": 13,
    "kvstored_client.testing.served_read.ServedRead": 13,
    "kvstored_client.testing.store.MemoryStore": 15,
}
"""Public methods and properties; vLLM's connector has as many as vLLM calls."""

ATTRIBUTES = {
    "benchmarks.storage.scale.Scale": 21,
    "engine_adapters.restore.cost_profile.CostProfile": 20,
    "engine_adapters.restore.testing.virtual_spans.VirtualSpans": 16,
    "engine_adapters.runner.restore.cake_restoration.CakeRestoration": 21,
    "engine_adapters.runner.model.model_config.ModelConfig": 16,
    "engine_adapters.runner.restore.span_restoration.SpanRestoration": 19,
    "engine_adapters.vllm.identity.identity.EngineIdentity": 17,
    "kvstored_client.testing.served_read.ServedRead": 17,
    "kvstored_client.testing.store.MemoryStore": 18,
}

PARAMETERS = {
    "benchmarks.restore.token_partition.restorer.TokenPartitionRestorer": 10,
    "engine_adapters.vllm.tier.KvstoredTier": 11,
}
"""Of constructors; vLLM sets those of the tier."""

SEAM_MEMBERS = {
    "engine_adapters.codecs.codec.Codec": 7,
    "engine_adapters.runner.engine.restoration.Restoration": 8,
    "kvstored.io.device.Device": 8,
}

UNREACHED = {
    "kvstored.tiers.policy.expiry",
    "kvstored.tiers.policy.fifo",
    "kvstored.tiers.policy.hit_density",
    "kvstored.tiers.policy.look_ahead",
    "kvstored.tiers.policy.prefetch_plan",
    "kvstored.tiers.policy.queue_places",
    "kvstored.tiers.policy.quota",
    "kvstored.tiers.policy.ranked_keys",
    "kvstored.tiers.policy.s3_fifo",
    "kvstored.tiers.policy.use_ages",
}
"""Modules that only tests and benchmarks lead to: policies, until the daemon takes hints."""

PURE_BY_WORD_ONLY = {
    "engine_adapters.reading.section",
}
"""Modules that say so and import what does I/O."""

PURE_UNCOVERED = {
    "kvstored_client.testing.addresses",
    "kvstored_client.testing.checks",
}
"""Modules that have no tests of their own name, by which all branches would be measured."""

COVERED_WITH_IO = {
    "engine_adapters.reading.section",
    "engine_adapters.chunk_codec",
    "engine_adapters.file_digests",
    "engine_adapters.vllm.scheduler_side.breaker",
    "engine_adapters.vllm.scheduler_side.disconnections",
    "engine_adapters.vllm.identity.request_identity",
    "engine_adapters.vllm.scheduler_side.step_budget",
    "engine_adapters.vllm.identity.tier_identity",
    "engine_adapters.vllm.identity.weights",
    "kvstored_contract.handshake",
}
"""Modules with every branch tested that look at a clock, at files, or at the client."""

UNLISTED: set[str] = set()
"""Packages whose docstring does not name every module that lies in them."""

WORDS: dict[str, dict[str, int]] = {
    "anew": {},
    "some day": {},
    "whoever": {
        "engine_adapters/vllm": 1,
        "kvstored/server": 1,
    },
    "behind": {
        "engine_adapters/runner": 2,
        "engine_adapters/vllm": 1,
    },
}
"""By word, how often it stands in the files of a folder, or in a document."""

LONG_SENTENCES: dict[str, int] = {}
"""Sentences of a document with too many words."""
