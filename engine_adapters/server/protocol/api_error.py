"""What a client hears instead of an answer. Pure."""

from collections.abc import Mapping

INVALID = "invalid_request_error"
OVERLOADED = "rate_limit_error"
UNKNOWN_KEY = "authentication_error"
FAILED = "server_error"


class ApiError(Exception):
    """A status of HTTP with OpenAI's error object; ``parameter`` names what is wrong.

    ``retry_after_s`` says when the same request may have success.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID,
        parameter: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self._error = {"message": message, "type": kind, "param": parameter, "code": code}

    @property
    def body(self) -> Mapping[str, object]:
        """The object that the client gets."""
        return {"error": self._error}
