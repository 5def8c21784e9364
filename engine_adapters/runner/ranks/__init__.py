"""Restoring into the processes that together run one model (HCache, section 5).

In reading order: what falls to one process (``model_shard``), calls that all make
(``collective_calls``), and the restoration (``parallel_restorer``).
"""
