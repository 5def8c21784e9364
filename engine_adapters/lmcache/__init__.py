"""A connector by which LMCache keeps its objects in kvstored (type ``native_plugin``).

In reading order: how an object of LMCache becomes a chunk (``stored_object``), how long what was
found is kept (``found_leases``), what is asked of the store (``object_store``), how LMCache hears
of what is done (``completions``), and the ``connector`` that it loads. None imports LMCache.
"""

from engine_adapters.lmcache.connector import Connector

__all__ = ["Connector"]
