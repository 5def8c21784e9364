"""Errors of codecs."""


class CodecError(ValueError):
    """States or bytes that a codec cannot turn into the other."""


class StatesError(CodecError):
    """States that a codec refuses: their shape, their dtype, or values that it cannot bound.

    The remedy is not to save them, or to choose a lossless codec.
    """


class PayloadError(CodecError):
    """Bytes that are damaged, truncated, or of another codec, version, shape or dtype.

    The remedy is to treat the slice as a miss.
    """
