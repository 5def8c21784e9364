"""The in-repo model runner: Llama-family models in PyTorch, their states kept in kvstored."""
