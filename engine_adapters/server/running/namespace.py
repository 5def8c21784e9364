"""What one namespace has of the store: a client, and all that works with it."""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_adapters.link.entries import Entries
from engine_adapters.link.errors import LinkError
from engine_adapters.runner.conversation.continued import ContinuedConversation, ConversationStore
from engine_adapters.runner.link.linked_prompt import LinkStore
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from engine_adapters.server.running.stored_prompt import StoredPrompt
from kvstored_client import Client
from kvstored_contract.keys import history_keys

LEASE_MS = 10_000
NAME_BYTES = 12
DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """Keeps states, context caches and conversations apart from those of others.

    ``links`` is None for a model whose states cannot move to other positions. Calls of ``entries``
    and ``conversations`` wait for the store, from any thread. ``making`` is held while context
    caches are made, so that the same text has one id; ``talking`` are names of conversations whose
    turn is not over. Both belong to the event loop.
    """

    salt: str
    client: Client
    state_format: StateFormat
    restorer: Restorer
    saver: StateSaver
    entries: Entries
    conversations: ConversationStore
    links: LinkStore | None
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    talking: set[str] = field(default_factory=set)

    @classmethod
    def open(
        cls,
        salt: str,
        model: Model,
        client: Client,
        state_format: StateFormat,
        restorer: Restorer,
        saver: StateSaver,
    ) -> "Namespace":
        """Of a client whose ``salt`` belongs to this namespace alone; these stay the caller's."""
        options, rates = restorer.options, restorer.rates
        try:
            links = LinkStore(client, state_format, model, options=options, rates=rates)
        except LinkError:
            links = None
        return cls(
            salt=salt,
            client=client,
            state_format=state_format,
            restorer=restorer,
            saver=saver,
            entries=Entries(client, state_format.layout.model),
            conversations=ConversationStore(
                client, state_format, model, saver=saver, options=options, rates=rates
            ),
            links=links,
        )

    def conversation(self, name: str) -> ContinuedConversation:
        """The conversation that clients of this namespace call so; waits for the store."""
        return self.conversations.open(self.stored_name(name))

    def stored_name(self, name: str) -> str:
        """That of a conversation among the sequences of all salts, which have names in common."""
        digest = hashlib.sha256(self.salt.encode()).hexdigest()[:DIGEST_CHARACTERS]
        return f"{digest}/{name}"

    def prompt(self, token_ids: Sequence[int]) -> StoredPrompt:
        """A prompt on its own, whose states are restored and saved."""
        return StoredPrompt(token_ids, self.restorer, self.saver)

    def entry_prompt(self, token_ids: Sequence[int]) -> StoredPrompt:
        """The same for an entry, of which every token is saved."""
        name = f"entry-{secrets.token_hex(NAME_BYTES)}"
        return StoredPrompt(token_ids, self.restorer, self.saver, entry_name=name)

    def has_states(self, token_ids: Sequence[int]) -> bool:
        """Whether all states of an entry are stored; waits for the store."""
        layout = self.state_format.layout
        if not self.client.namespace:
            return False
        keys = history_keys(namespace=self.client.namespace, layout=layout, token_ids=token_ids)
        lease = self.client.pin(layout, keys, lease_ms=LEASE_MS)
        if lease is None:
            return False
        try:
            return all(lease.is_pinned)
        finally:
            lease.release()

    def close(self) -> None:
        """After the engine's last step; waits until nothing is held any more."""
        self.conversations.close()
        if self.links is not None:
            self.links.close()
