import pytest

from engine_adapters.conversation.errors import (
    ConversationError,
    LostWordsError,
    OtherModelError,
)
from engine_adapters.link.errors import ExpiredError, LinkError, LostEntryError, QuotaError
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.server.http.failures import as_api_error


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (ExpiredError("cc-1"), 404, "cc-1"),
        (LostEntryError("cc-1"), 410, "create it from the same text"),
        (QuotaError("entries_max", 8, 9), 429, "entries_max is 8"),
        (LinkError("no room"), 503, "no room"),
        (ConversationError("gone"), 503, "gone"),
        (RequestError("too long"), 400, "too long"),
        (KeyError("secret"), 500, "the server's log"),
    ],
)
def test_what_a_client_hears(error: Exception, status: int, says: str) -> None:
    told = as_api_error(error)
    assert told.status == status
    assert says in str(told)
    assert "secret" not in str(told)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LostWordsError("gone"), 410, "conversation_lost"),
        (OtherModelError("theirs"), 409, "conversation_of_other_model"),
    ],
)
def test_what_is_final_for_a_conversation_was_to_be_tried_again(
    error: Exception, status: int, code: str
) -> None:
    """Bug: 503, as of a store that does not answer, though no later try can have success."""
    heard = as_api_error(error)
    assert heard.status == status
    assert heard.body["error"] == {
        "message": str(heard),
        "type": "invalid_request_error",
        "param": "conversation",
        "code": code,
    }
