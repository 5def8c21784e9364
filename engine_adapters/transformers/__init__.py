"""Prefix reuse for ``generate`` of Hugging Face transformers: ``KvstoredCache``.

In reading order: which models it takes (``support``) and what names one (``identity``); how the
states of a cache lie in chunks (``chunk_states``); which tokens a cache's states are of
(``token_track``); the stored prefix of a prompt (``stored_prefix``); the ``cache`` itself.
"""

from engine_adapters.transformers.cache import KvstoredCache

__all__ = ["KvstoredCache"]
