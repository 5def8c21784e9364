"""The one error of this package."""


class FormatError(ValueError):
    """Bytes from media are not what they should be; the message says which field."""
