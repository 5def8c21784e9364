"""A connector for vLLM, named in its ``--kv-transfer-config``.

Only the modules whose docstring says so import vLLM; the others are tested without it.
"""
