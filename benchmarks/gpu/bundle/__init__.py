"""Packs what ``python -m benchmarks gpu`` needs beside PyTorch, for a machine without a network.

In reading order: which wheels and which files (``contents``), the packing (``build``), and the
program that a bundle starts with (``start``, which is called ``run`` there).
"""
