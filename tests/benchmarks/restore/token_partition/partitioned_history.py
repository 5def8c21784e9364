"""A history that is stored in two layouts, to be restored by tokens."""

from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.restore.token_partition.partition import TokenPartition
from benchmarks.restore.token_partition.restorer import TokenPartitionRestorer
from engine_adapters.restore import Source
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient, StoredChunk
from tests.engine_adapters.runner.memory import make_store

EXACT = 1e-5
FIRST_SLOT = 3
HISTORY_TOKENS = 112
"""Fourteen chunks; the sequence goes on behind them."""
NEW_TOKENS = 8


def split_at(token: int, other: Source, token_count: int = HISTORY_TOKENS) -> TokenPartition:
    """Hidden states before ``token`` if the others are KV, behind it if they are computed."""
    hidden_count = token if other is Source.KV else token_count - token
    return TokenPartition(
        hidden_count=hidden_count, other_count=token_count - hidden_count, other=other
    )


@dataclass
class History:
    """A sequence that is stored in both layouts, and what computing it gives."""

    model: Model
    formats: dict[Source, StateFormat]
    token_ids: list[int]
    chunks: dict[bytes, StoredChunk]
    computed: KvCache
    continuation: list[int]
    clients: list[MemoryClient] = field(default_factory=list)

    def client(self, **options: Any) -> MemoryClient:
        """Of a store of its own."""
        client = MemoryClient(make_store(dict(self.chunks)), **options)
        self.clients.append(client)
        return client

    def key(self, client: MemoryClient, source: Source, chunk: int) -> bytes:
        return client.prefix_keys(self.formats[source].layout, self.token_ids)[chunk]

    def restorer(self, client: MemoryClient, **options: Any) -> TokenPartitionRestorer:
        return TokenPartitionRestorer(
            client,
            self.model,
            hidden_format=self.formats[Source.HIDDEN],
            kv_format=self.formats[Source.KV],
            **options,
        )

    def check(
        self, client: MemoryClient, partition: TokenPartition, restored: int, **options: Any
    ) -> RestoreReport:
        """Restores, compares states with those computed, and generates from them."""
        cache = self.model.make_cache(FIRST_SLOT + len(self.token_ids) + NEW_TOKENS)
        report = self.restorer(client, **options).restore(
            self.token_ids, partition, cache=cache, first_slot=FIRST_SLOT
        )
        assert report.restored_tokens == restored
        for ours, theirs in (
            (cache.keys, self.computed.keys),
            (cache.values, self.computed.values),
        ):
            wanted = theirs[:, :restored]
            found = ours[:, FIRST_SLOT : FIRST_SLOT + restored]
            assert (found - wanted).abs().max() < EXACT if restored else True
            assert torch.count_nonzero(ours[:, :FIRST_SLOT]) == 0
            assert torch.count_nonzero(ours[:, FIRST_SLOT + partition.token_count :]) == 0
        assert greedy(self.model, cache, self.token_ids, restored) == self.continuation
        return report


def greedy(model: Model, cache: KvCache, token_ids: list[int], restored: int) -> list[int]:
    """New tokens behind ``token_ids``, of which the first ``restored`` are in the cache."""
    tokens = list(token_ids)
    while len(tokens) < len(token_ids) + NEW_TOKENS:
        segment = Segment(
            request_id=0,
            first_row=0,
            token_count=len(tokens) - restored,
            first_position=restored,
            first_slot=FIRST_SLOT,
        )
        logits = model.forward(
            tokens[restored:],
            [segment],
            cache=cache,
            sink=NullSink(),
            logit_rows=[len(tokens) - restored - 1],
        )
        restored = len(tokens)
        tokens.append(int(logits[0].argmax()))
    return tokens[len(token_ids) :]
