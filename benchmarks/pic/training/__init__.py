"""Training the small Llama that ``pic`` judges links by: ``python -m benchmarks.pic.training``.

In reading order: its numbers (``plan``), sequences of documents and questions (``batches``), what
stands in the first weights (``reading_heads``), and what the model answers by now (``answered``).
All else is in ``benchmarks.training``.
"""
