"""Restoring by a token-wise partition, which HCache compares with its own (section 4.1.1).

In reading order: ``partition`` (which tokens come from what, and how long that takes),
``token_reads`` (how both reads share the devices), ``chunk_cut`` (tokens of cut chunks),
``parts`` (each part while it is restored), ``restorer`` (both together).
"""
