"""A server that talks as OpenAI's does: ``python -m engine_adapters.server --help``.

In reading order: what clients ask and are answered (``protocol``), their keys (``api_keys``), the
model with its chat template (``served_model``); the engine and the store (``running``), the paths
(``http``); all of it ``opened`` for a model directory and a daemon, and the ``options`` of the
command line.
"""
