"""Help for tests and benchmarks of the adapter: real engines of tiny models, in own processes.

Three modules run in a process that imports vLLM: an engine that obeys lines of JSON
(``engine_child``), vLLM's own offloading on a CPU (``host_tier``), and one that only imports
(``imports``). The rest runs where vLLM is not installed, too: models (``tiny_model``), arguments
of engines (``engine_arguments``), where their processes live (``child_environment``), an engine
(``engine_process``), faster starts of many (``fork_server``), vLLM's server (``server_process``)
and its port (``ports``), conversations with it (``conversations``), whether two said the same
(``agreement``), and what goes wrong (``errors``).
"""
