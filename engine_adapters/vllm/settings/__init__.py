"""What users set, and what the engine's own configuration allows.

In reading order: what a user writes (``options``), what an engine is (``engine_config``), which
modes it allows (``support``), what is stored of every layer (``state_kinds``), and the mode of one
request where the planner chooses (``mode_choice``).
"""
