"""What can go wrong with a conversation. Pure."""


class ConversationError(ValueError):
    """A conversation that cannot be opened, cut or continued; the message says why.

    States that are gone never raise it: they are computed again.
    """


class OtherModelError(ConversationError):
    """The words belong to another model."""


class LostWordsError(ConversationError):
    """The store has lost words of something that it still names."""
