"""The layouts that a session has registered."""

from collections.abc import Mapping

from kvstored.server.errors import refuse
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

LAYOUTS_PER_SESSION_MAX = 256


class LayoutTable:
    """At most ``LAYOUTS_PER_SESSION_MAX`` layouts by their ids.

    The event loop adds; any thread may find.
    """

    def __init__(self) -> None:
        self._layouts: dict[bytes, StateLayout] = {}

    def check_limit(self, layout: StateLayout) -> None:
        """Raises RefusedError when the layout would be one too many."""
        is_new = layout.layout_id not in self._layouts
        if is_new and len(self._layouts) >= LAYOUTS_PER_SESSION_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"a session has at most {LAYOUTS_PER_SESSION_MAX} layouts; open another session",
            )

    def add(self, layout: StateLayout) -> bytes:
        """Registers a layout and returns its id; raises RefusedError beyond the limit."""
        self.check_limit(layout)
        self._layouts[layout.layout_id] = layout
        return layout.layout_id

    @property
    def known(self) -> Mapping[bytes, StateLayout]:
        """All registered layouts by their ids."""
        return self._layouts

    def find(self, layout_id: bytes) -> StateLayout:
        """The registered layout of this id; raises RefusedError."""
        layout = self._layouts.get(layout_id)
        if layout is None:
            refuse(
                Reason.LAYOUT_UNKNOWN,
                f"layout {layout_id.hex() or '(empty)'} is not registered in this session; "
                "call RegisterLayout first",
            )
        return layout
