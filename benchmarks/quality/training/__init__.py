"""Training the small Llama that ``quality`` measures: ``python -m benchmarks.quality.training``.

In reading order. The text: documents in their markups (``markup``), which of them is prose
(``prose``), where they lie (``sources``), all of them (``corpus``), as tokens (``prepared``). The
training: its numbers (``plan``), sequences (``batches``), the ``network``, what stands in its first
weights (``induction``), the steps (``trainer``), what it recalls by now (``recall``), and what
comes out (``checkpoint``). docs/development.md says how to train, and why so.
"""
