"""One way to read: stored pieces of a history come span after span into a share of an arena.

It knows the client and tensors, but nothing of models, engines or vLLM.

In the order in which it is best read: what is read (``piece``, ``stored_pieces``) and which states
it has (``slice_format``), or mere bytes (``byte_format``); where layers lie in a region
(``section``, pure); the reads of one span (``section_reads``), what they bring (``slices``) as it
is (``arena_slices``) or decoded (``decoded_slices``), and when its region is free again (``span``);
what is read next (``read_policy``, pure), how (``read_options``) and where (``span_opener``), by
whom (``span_reader``, with ``held_spans``), and how much of the arena all readers of a restorer may
hold (``arena_share``). Where each layer of a whole history comes before the next one: which layers
are there (``layer_gate``, pure), and who takes them (``layer_reader``).
"""
