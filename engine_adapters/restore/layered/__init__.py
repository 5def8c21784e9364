"""Histories that come layer after layer, while new tokens are computed. Pure.

As AttentionStore does (section 3.2.1). In reading order: what reads take lately (``read_meter``),
whether layer by layer is worth it and how many layers should be there first (``preload``), how long
the store takes to answer (``answer_times``), and how long a layer is waited for
(``layerwise_limit``).
"""
