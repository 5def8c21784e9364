"""What a client hears of an error."""

import logging

from aiohttp import web

from engine_adapters.conversation.errors import (
    ConversationError,
    LostWordsError,
    OtherModelError,
)
from engine_adapters.link.errors import ExpiredError, LinkError, LostEntryError, QuotaError
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.server.http.turn import AbortedError
from engine_adapters.server.protocol.api_error import FAILED, ApiError

LOGGER = logging.getLogger(__name__)


def as_api_error(error: Exception) -> ApiError:
    """The error that a client hears of; what it cannot act on goes to the log."""
    match error:
        case ApiError():
            return error
        case web.HTTPException():
            return ApiError(error.reason, status=error.status)
        case ExpiredError():
            message = f"there is no context cache {error.entry_id!r}: it has expired, or never was"
            return ApiError(message, status=404, code="context_cache_not_found")
        case LostEntryError():
            message = (
                f"the store has lost the text of context cache {error.entry_id!r}; create it from "
                "the same text once more, which keeps its id"
            )
            return ApiError(message, status=410, code="context_cache_lost")
        case QuotaError():
            message = (
                f"this key may have no more context caches ({error.limit_name} is {error.limit}); "
                "delete some, or give them a ttl"
            )
            return ApiError(message, status=429, code=f"context_caches_{error.limit_name}")
        case RequestError():
            return ApiError(str(error))
        case AbortedError():
            return ApiError(
                "the server stops before the answer is complete", status=503, kind=FAILED
            )
        case LostWordsError():
            message = (
                "the store has lost the words of this conversation; start one of another name with "
                "the text that you have of it, or delete this one first"
            )
            return ApiError(message, status=410, parameter="conversation", code="conversation_lost")
        case OtherModelError():
            message = "this conversation belongs to another model; use another name, or delete it"
            return ApiError(
                message, status=409, parameter="conversation", code="conversation_of_other_model"
            )
        case ConversationError() | LinkError():
            return ApiError(str(error), status=503, kind=FAILED)
    LOGGER.error("a request failed", exc_info=error)
    return ApiError("the request failed; the server's log says why", status=500, kind=FAILED)
