"""Requests that continue a conversation: their history comes from its pieces in the store.

In reading order: which rows of arrived chunks are loaded together (``load_batches``, pure), the
window that they belong to (``stored_window``), the restoration that loads it span after span
(``piece_restoration``), who chooses between that and layer after layer (``window_restorer``), and
what the engine sees of a conversation (``continued``).
"""
