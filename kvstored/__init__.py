"""kvstored: a node-local daemon that stores the attention state of language models."""


def package_version() -> str:
    """The version that is installed; looked up on each call, which takes milliseconds."""
    from importlib.metadata import version

    return version("kvstored")
