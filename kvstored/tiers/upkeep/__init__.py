"""What operators do to a running store.

In reading order: which chunks they mean (``chunk_search``), bringing these into DRAM (``warmer``),
quotas that change (``tier_quotas``), what is read most (``hottest``), and all of it together
(``upkeep``).
"""
