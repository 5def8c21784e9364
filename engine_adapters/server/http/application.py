"""All paths of the server."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from engine_adapters.server.http.caches import Caches
from engine_adapters.server.http.conversations import Conversations
from engine_adapters.server.http.failures import as_api_error
from engine_adapters.server.http.service import Service
from engine_adapters.server.http.texts import Texts
from engine_adapters.server.http.watching import Watching

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_application(service: Service) -> web.Application:
    """Run it with ``handler_cancellation``: so a client that goes away ends its request."""
    texts, caches, watching = Texts(service), Caches(service), Watching(service)
    conversations = Conversations(service)
    application = web.Application(
        client_max_size=service.limits.body_bytes, middlewares=[_watched(service)]
    )
    application.add_routes(
        [
            web.get("/v1/models", watching.models),
            web.get("/v1/models/{name:.+}", watching.model),
            web.post("/v1/completions", texts.complete),
            web.post("/v1/chat/completions", texts.chat),
            web.post("/v1/context_caches", caches.create),
            web.get("/v1/context_caches", caches.show_all),
            web.get("/v1/context_caches/{entry_id}", caches.show),
            web.delete("/v1/context_caches/{entry_id}", caches.delete),
            web.delete(r"/v1/conversations/{name:[\s\S]+}", conversations.delete),
            web.get("/metrics", watching.metrics),
            web.get("/healthz", watching.health),
        ]
    )
    return application


def _watched(service: Service) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Errors become OpenAI's, and answers are counted."""

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except (asyncio.CancelledError, ConnectionResetError):
            service.metrics.disconnected.inc()
            raise
        except Exception as error:
            response = _error_response(error)
        route = request.match_info.route.resource
        path = "unknown" if route is None else route.canonical
        service.metrics.answered.labels(path, str(response.status)).inc()
        return response

    return watch


def _error_response(error: Exception) -> web.Response:
    found = as_api_error(error)
    headers = {}
    if found.retry_after_s is not None:
        headers["Retry-After"] = str(found.retry_after_s)
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers["Allow"] = error.headers["Allow"]
    return web.json_response(found.body, status=found.status, headers=headers)
