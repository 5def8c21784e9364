"""The engine's KV cache and its model, as far as the adapter touches them.

In reading order: how blocks lie in memory (``block_layout``), the cache as blocks of bytes
(``kv_blocks``) and the way of chunks in
(``block_filler``). For the mode that stores hidden states: the decoder layers of a model
(``decoder_layers``), hooks on their inputs (``layer_hooks``), where these lie on a GPU
(``staged_inputs``), what hooks give (``hidden_layers``), rows of blocks that are not complete
(``block_rows``), the same of a device that is late (``late_rows``), and whether inputs give the
model's own keys and values (``projection_check``).
"""
