"""Adapters that connect inference engines to kvstored through its client.

In reading order: how states become bytes (``codecs``, and ``chunk_codec`` for whole chunks), how a
restoration is planned (``restore``), how states are copied to the device that computes
(``device_copies``), how stored states are read (``reading``), what is kept of a ``conversation``,
how prompts are put together (``link``), what the store hears of waiting requests (``hints``), our
own engine (``runner``), its HTTP ``server``, vLLM (``vllm``), Hugging Face's ``transformers``,
``lmcache``, and ``sglang``. What several engines need: when a daemon is left alone that hangs
(``slow_calls`` decides, ``breaker`` applies it), digests of weight files (``file_digests``),
what is remembered of one (``hashed_file``), and what names a model's weights
(``weights_identity``); whether the daemon takes their layouts (``layout_check``), threads that are
there from the start (``started_pool``), and what torch must not use of a ``processor``.
"""
