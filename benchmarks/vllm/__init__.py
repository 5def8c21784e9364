"""Restoring in real vLLM engines."""

from benchmarks.vllm.run import BENCHMARK

__all__ = ["BENCHMARK"]
