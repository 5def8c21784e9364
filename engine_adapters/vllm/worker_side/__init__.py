"""The connector in a worker: carries out the orders of each step.

In reading order: how long a load is waited for, compared with computing (``load_bound``), one load
while it runs (``load_job``) on its thread (``loader``), the chunks of a save (``save_pieces``),
saves (``saver``), layer inputs on their way from a GPU (``staged_forwards``) and from a model
(``layer_inputs``), work between two forwards (``between_forwards``), whether one came to its end
(``forward_watch``), what steps take (``step_timer``), which cores the threads run on
(``thread_cores``), and the whole (``side``).

Where each rank has a part of every layer input: all ranks bring chunks together (``meetings``), by
calls that each of them makes (``rank_group``), as a rule through vLLM's own groups
(``tensor_ranks``).
"""
