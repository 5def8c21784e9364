"""Conversations that a store keeps under a name: all their token ids, their cuts, their states.

It knows the client, but no model and no engine.

In reading order: what can go wrong (``errors``); what an engine attends to after cuts (``history``,
pure); how token ids and cuts lie in the store (``words``, pure) and the sequence that holds them
(``journal``); which of the stored states can be used (``usable_states``, pure); and what to do with
a conversation by its name (``conversations``).
"""
