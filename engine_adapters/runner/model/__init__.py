"""Models of the Llama family and OPT: files, forward pass, cache.

In reading order. Their configuration: ``config_file`` and ``config_fields`` to ``model_config``
(``llama_config``, ``opt_config``). Their weights: ``weights``, ``tensor_pool``, ``model_weights``
(``llama_weights``, ``opt_weights``); a random model (``random_model``, ``random_tensors``); the
``tokenizer``; and what identifies the states (``fingerprint``). The forward pass: what one computes
(``step``), its layers with attention (``forward_pass``), the ``model`` with ``norm``,
``projection``, ``rotary``, ``mlp``, the ``kv_cache``, keys and values made from layer inputs
(``kv_projection``), and what queries attend to (``query_attention``). What can go wrong:
``errors``.
"""
