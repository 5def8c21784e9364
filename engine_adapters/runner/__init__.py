"""The in-repo model runner: Llama-family models in PyTorch, their states kept in kvstored.

In reading order. From the outside: one ``turn`` of a conversation, prompts with entries
(``linking``), and the commands (``calibrate_command``, ``inspect_command``, ``link_command``, with
``options``). The model (``model``) and the step loop (``engine``); how its states lie in chunks
(``states``), are saved (``save``) and restored (``restore``), also into several processes
(``ranks``); those of a ``conversation``, and of entries that prompts are put together from
(``link``); how fast a machine is (``calibrate``).
"""
