"""What the scheduler's side and the workers tell each other and vLLM.

In reading order: the parts of vLLM's request that the adapter touches (``engine_request``), how
its blocks and the store's chunks fit together (``block_span``), which entries a request names
(``link_request``) and where their chunks go (``linked_span``), orders and their answers
(``orders``), counts (``tally``), a daemon's refusal (``refusal``), which blocks a router should
know of (``chunk_events``), and what a put says to the engines that follow (``chunk_note``).
"""
