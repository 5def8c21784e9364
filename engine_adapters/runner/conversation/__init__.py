"""Requests that continue a conversation: their history comes from its pieces in the store.

In reading order: which rows of arrived chunks are loaded together (``load_runs``, pure), the
restoration that loads them (``piece_restoration``), and what the engine sees of a conversation
(``continued``).
"""
