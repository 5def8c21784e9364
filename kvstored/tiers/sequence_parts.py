"""Everything that sequences need, put together."""

import threading

from kvstored.counters import Counters
from kvstored.io.engine import IoEngine
from kvstored.store.chunk_store import ChunkStore
from kvstored.store.committer import Commit
from kvstored.store.index import IndexChange
from kvstored.store.sequence_table import SequenceTable
from kvstored.tiers.append_path import AppendPath
from kvstored.tiers.dram import DramTier
from kvstored.tiers.open_sequences import OpenSequences
from kvstored.tiers.sequence_recorder import SequenceRecorder
from kvstored.tiers.sequences import Sequences
from kvstored.tiers.stager import Stager
from kvstored.tiers.tail_frames import TailFrames


class SequenceParts:
    """The verbs of sequences, the append path, and the thread that keeps records."""

    def __init__(
        self,
        *,
        store: ChunkStore,
        dram: DramTier,
        engine: IoEngine,
        stager: Stager,
        counters: Counters,
    ) -> None:
        self._committer = store.committer
        tails = TailFrames(store=store, dram=dram, engine=engine, stager=stager)
        self.opened = OpenSequences(
            table=SequenceTable(index=store.index, committer=store.committer),
            dram=dram,
            layout_of=store.index.layout,
        )
        self._recorder = SequenceRecorder(self.opened)
        self.append_path = AppendPath(
            sequences=self.opened,
            recorder=self._recorder,
            tails=tails,
            dram=dram,
            stager=stager,
            counters=counters,
        )
        self.verbs = Sequences(opened=self.opened, tails=tails)

    def close(self) -> None:
        """Records what became durable and ends the thread.

        Every write must be over, and the committer must still run.
        """
        is_settled = threading.Event()
        barrier = Commit(change=IndexChange(), done=lambda _: is_settled.set())
        self._committer.submit(barrier)
        is_settled.wait()
        self._recorder.close()
