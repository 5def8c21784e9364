"""Restoring histories: by spans (HCache), from both ends (Cake), by layers (AttentionStore).

In reading order: where a history goes (``target``), the way into the cache of the device that
computes (``layer_loader``); how long the store is waited for (``loading_limit``); how histories are
restored (``restore_options``), and one of them by spans (``span_restoration``), from both ends
(``cake_restoration``, with what is on its way, ``awaited_chunks``, and ``pointer_sample``) and by
layers (``layerwise_restoration``, of a
``layered_history``); who begins them (``restorer``).
"""
