"""Bodies of requests, and what is wrong with them."""

import json
from collections.abc import Callable

import pytest

from engine_adapters.server.protocol.api_error import ApiError


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def refused(read: Callable[[], object]) -> tuple[object, str]:
    """The parameter that an error names, and its message."""
    with pytest.raises(ApiError) as caught:
        read()
    assert caught.value.status == 400
    error = caught.value.body["error"]
    assert isinstance(error, dict)
    return error["param"], error["message"]
