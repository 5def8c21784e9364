from engine_adapters.server.protocol.api_error import ApiError


def test_the_body_is_that_of_openai() -> None:
    error = ApiError("no such thing", status=404, parameter="model", code="model_not_found")
    assert error.status == 404
    assert error.retry_after_s is None
    assert str(error) == "no such thing"
    assert error.body == {
        "error": {
            "message": "no such thing",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
