"""Benchmarks: ``python -m benchmarks NAME [--quick] [--json FILE]``.

Each compares with a peer in one interleaved run, so that a machine whose speed drifts
is equally fast for both.
"""
