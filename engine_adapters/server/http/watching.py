"""``/v1/models``, ``/metrics`` and ``/healthz``."""

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from engine_adapters.server.http.service import Service
from engine_adapters.server.protocol.replies import listed, model_reply


class Watching:
    """Each method answers one path."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, request: web.Request) -> web.Response:
        """``GET /v1/models``."""
        self._service.namespace_of(request)
        return web.json_response(listed([self._model()]))

    async def model(self, request: web.Request) -> web.Response:
        """``GET /v1/models/NAME``."""
        self._service.namespace_of(request)
        self._service.check_model(request.match_info["name"])
        return web.json_response(self._model())

    async def metrics(self, request: web.Request) -> web.Response:
        """``GET /metrics``, for Prometheus."""
        del request
        text = generate_latest(self._service.metrics.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def health(self, request: web.Request) -> web.Response:
        """``GET /healthz``: 503 where requests should go elsewhere."""
        del request
        if not self._service.engine.is_alive:
            return web.Response(status=503, text="the engine has failed\n")
        if self._service.admission.is_draining:
            return web.Response(status=503, text="draining\n")
        return web.Response(text="ok\n")

    def _model(self) -> "dict[str, object]":
        model = self._service.model
        return dict(model_reply(model.name, model.created_s))
