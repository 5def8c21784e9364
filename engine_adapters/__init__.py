"""Adapters that connect inference engines to kvstored through its client.

In reading order: how states become bytes (``codecs``, and ``chunk_codec`` for whole chunks), how a
restoration is planned (``restore``), how states are copied to the device that computes
(``device_copies``), how stored states are read (``reading``), what is kept of a ``conversation``,
how prompts are put together (``link``), what the store hears of waiting requests (``hints``), our
own engine (``runner``), its HTTP ``server``, vLLM (``vllm``), and Hugging Face's ``transformers``.
What several engines need: digests
of weight files (``file_digests``) and what is remembered of one (``hashed_file``), whether the
daemon takes their layouts (``layout_check``), and what torch must not use of a ``processor``.
"""
