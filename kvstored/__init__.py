"""kvstored: a node-local daemon that stores the attention state of language models."""

from importlib.metadata import version

__version__ = version("kvstored")
