"""Ends a text at the first stop string, however it is cut into pieces. Pure."""

from collections.abc import Sequence


class StopScanner:
    """Holds back what may be the beginning of a stop string. The string itself is never given."""

    def __init__(self, stops: Sequence[str]) -> None:
        """``stops`` are not empty strings; there may be none."""
        self._stops = tuple(stops)
        self._held = ""
        self.is_stopped = False
        """Whether one was found: nothing more comes."""

    def push(self, text: str) -> str:
        """The text that is certain with this piece."""
        if self.is_stopped:
            return ""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self.is_stopped = True
            return self._held[: min(places)]
        certain = len(self._held) - self._begun()
        given, self._held = self._held[:certain], self._held[certain:]
        return given

    def flush(self) -> str:
        """What was held back, where nothing follows."""
        return "" if self.is_stopped else self._held

    def _begun(self) -> int:
        """How many characters at the end may begin a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        for count in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-count:]) for stop in self._stops):
                return count
        return 0
