"""Restoring a history in all modes: in a simulation of the paper's platforms."""

from benchmarks.restore.run import BENCHMARK

__all__ = ["BENCHMARK"]
