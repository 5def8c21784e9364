"""Tests that start engines: they need binaries of vLLM for this device, others its sources."""

REAL_ENGINES = (
    "test_engine_compiled",
    "test_engine_events",
    "test_engine_example",
    "test_engine_failed_step",
    "test_engine_failures",
    "test_engine_lora",
    "test_engine_modes",
    "test_engine_parallel",
    "test_engine_pic",
    "test_engine_prefix",
    "test_engine_server",
    "test_engine_staged",
    "test_engine_tier",
)
