"""The identity under which the store knows each request of an engine."""

import logging
import secrets
from dataclasses import replace

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.identity.request_identity import RequestIdentifier, UnknownIdentityError
from engine_adapters.vllm.messages.engine_request import EngineRequest
from engine_adapters.vllm.messages.tally import Tally

LOGGER = logging.getLogger("vllm.kvstored")


class StoreIdentities:
    """Belongs to the scheduler's thread."""

    def __init__(self, identifier: RequestIdentifier, tally: Tally) -> None:
        self._identifier = identifier
        self._tally = tally
        self._unknown: set[str] = set()
        self._generation = ""

    def of(self, request: EngineRequest) -> RequestIdentity | None:
        """None for a request that bypasses the store; each cause of that is logged once."""
        try:
            identity = self._identifier.identity_of(request)
        except UnknownIdentityError as error:
            self._tally.add("unknown_requests")
            if str(error) not in self._unknown:
                self._unknown.add(str(error))
                LOGGER.warning("kvstored bypasses request %s: %s", request.request_id, error)
            return None
        if self._generation:
            identity = replace(identity, salt=f"{identity.salt} {self._generation}")
        return identity

    def begin_generation(self) -> None:
        """Nothing that was stored before is found from now on.

        No other engine finds what this one stores from now on: only it knows of these weights.
        """
        self._generation = secrets.token_hex(16)
