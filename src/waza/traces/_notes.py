"""What is missing in a recording or was left out of it: sentences, each once, not more than a person reads."""

from __future__ import annotations

MAX_NOTES = 20


class Notes:
    """Sentences, as they come up; beyond a number they are only counted."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}
        self._more = 0

    def add(self, sentence: str) -> None:
        """Take a sentence, unless it was told before."""
        if sentence in self._told:
            return
        if len(self._told) < MAX_NOTES:
            self._told[sentence] = None
        else:
            self._more += 1

    def take(self) -> list[str]:
        """Return the sentences, and forget them."""
        told = [*self._told, f"and {self._more} more"] if self._more else [*self._told]
        self._told, self._more = {}, 0
        return told
