"""Which layers of a history are there, so that they can be used while later ones come. Pure."""

from collections.abc import Sequence

from engine_adapters.reading.piece import Piece


class LayerGate:
    """One gate for each layer, which opens when all pieces that are kept have that layer.

    Layers count from 0 and may come in any order, of any pieces. A lost piece is kept no more, and
    neither are those after it: what comes after it in the sequence depends on it. Gates that are
    open stay open. Not thread-safe.
    """

    def __init__(self, pieces: Sequence[Piece], *, layer_count: int) -> None:
        self._pieces = tuple(pieces)
        self._layer_count = layer_count
        self._missing = [set(range(len(pieces))) for _ in range(layer_count)]
        self._open_layers = layer_count if not pieces else 0
        self._kept = len(pieces)

    @property
    def piece_count(self) -> int:
        """All pieces, lost ones included."""
        return len(self._pieces)

    @property
    def kept(self) -> int:
        """Leading pieces of which nothing is lost."""
        return self._kept

    @property
    def stop_token(self) -> int:
        """The position after the last token of those; 0 for none."""
        return self._pieces[self._kept - 1].stop_position if self._kept else 0

    @property
    def open_layers(self) -> int:
        """Leading layers that all kept pieces have."""
        return self._open_layers

    @property
    def is_done(self) -> bool:
        """Whether all gates are open."""
        return self._open_layers == self._layer_count

    def note(self, layer: int, pieces: range) -> None:
        """One layer of these pieces is there."""
        self._missing[layer].difference_update(pieces)
        self._open()

    def lose(self, piece: int) -> None:
        """A layer of this piece will never be there."""
        self._kept = min(self._kept, piece)
        self._open()

    def end(self) -> None:
        """Nothing more will come: what is not there is lost."""
        for missing in self._missing:
            self._kept = min(self._kept, *missing, self._kept)
        self._open()

    def _open(self) -> None:
        while not self.is_done and min(self._missing[self._open_layers], default=self._kept) >= (
            self._kept
        ):
            self._open_layers += 1
