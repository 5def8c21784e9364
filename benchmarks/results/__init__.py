"""What lies in ``docs/results``: which code each file measured, and whether that is still so."""

from benchmarks.results.age import Age
from benchmarks.results.listing import list_results
from benchmarks.results.result import Result, age_of, read_results

__all__ = ["Age", "Result", "age_of", "list_results", "read_results"]
