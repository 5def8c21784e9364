"""Decoding of requests where a refusal can be told.

gRPC answers a body that it cannot decode with UNKNOWN and logs it as a fault of the daemon.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import DecodeError

from kvstored_contract.reasons import REASON_METADATA, Reason

if TYPE_CHECKING:
    # The classes of gRPC take no parameters when the program runs.
    Handler = grpc.RpcMethodHandler[Any, Any]


class _Registry:
    """What generated code adds a service to: passes its methods on, with decoding of our own."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Does nothing: generated code adds every method here, and again below by its name."""

    def add_registered_method_handlers(
        self, service: str, handlers: "Mapping[str, Handler]"
    ) -> None:
        """Adds the methods of one service, all of them unary."""
        decoding = {name: _decoding(handler) for name, handler in handlers.items()}
        handler = grpc.method_handlers_generic_handler(service, decoding)
        self._server.add_generic_rpc_handlers((handler,))


def decoding_registry(server: grpc.aio.Server) -> grpc.aio.Server:
    """What services are added to instead of ``server``."""
    return cast("grpc.aio.Server", _Registry(server))


def _decoding(handler: "Handler") -> "Handler":
    decode = handler.request_deserializer
    assert decode is not None
    serve = cast("Callable[[Any, Any], Awaitable[Any]]", handler.unary_unary)

    async def call(body: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        try:
            request = decode(body)
        except DecodeError:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "the request is not a message of this method",
                ((REASON_METADATA, Reason.FIELD_INVALID.name),),
            )
        return await serve(request, context)

    return grpc.unary_unary_rpc_method_handler(
        call, response_serializer=handler.response_serializer
    )
