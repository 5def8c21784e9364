"""Restoring histories: by layers (HCache) and from both ends (Cake).

In reading order: the way to the device that computes (``staging``) and into the cache
(``layer_loader``); how long the store is waited for (``patience``, ``loading_limit``); one history
by layers (``span_restoration``) and what starts it (``restorer``); one from both ends
(``cake_restoration``, expecting ``cake_costs``) and what starts that (``cake_restorer``).
"""
