"""A connector for vLLM, named in its ``--kv-transfer-config``.

In reading order. What vLLM loads by name: ``connector``, ``scheduler`` and ``worker`` for the
modes that need their own classes, ``tier`` for vLLM's own offloading (with ``tier_store`` and
``tier_follower``); between its processes travel ``metadata`` and ``statistics``.

What users set and what an engine is (``settings``), what bytes depend on (``identity``), what both
sides tell each other (``messages``), and what routers hear (``events``). The scheduler decides
(``scheduler_side``); the workers carry out (``worker_side``), on the engine's blocks (``blocks``).
For tests of engines: ``testing``.
"""
