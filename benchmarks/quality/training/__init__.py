"""Training the small Llama that ``quality`` measures: ``python -m benchmarks.quality.training``.

In reading order: its numbers (``plan``), sequences of text and records (``batches``), what stands
in the first weights (``induction``), and what the model recalls by now (``recall``). All else is
in ``benchmarks.training``.
"""
