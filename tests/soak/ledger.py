"""What was sent, what became of it, and what of that is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

DELAYS_MS: Final = {1: 1_000, 2: 2_000, 3: 4_000}
"""The first levels of the brokers that are soaked."""
CLOCKS_MS: Final = 20
"""Clocks are read in whole ms, by several programs."""


@dataclass(slots=True)
class Sent:
    """One message that was acknowledged, when it may come at the earliest (ms since the epoch), and
    whether it may.
    """

    due_ms: int
    is_wanted: bool = True


@dataclass(slots=True)
class Ledger:
    """Keys are unique; a group is due each wanted message once at least."""

    sent: dict[str, Sent] = field(default_factory=dict)
    taken: dict[str, Counter[str]] = field(default_factory=dict)
    """By group."""
    early: list[str] = field(default_factory=list)

    def acknowledged(self, key: str, due_ms: int, *, is_wanted: bool = True) -> None:
        self.sent[key] = Sent(due_ms, is_wanted)

    def got(self, group: str, key: str, now_ms: int) -> None:
        self.taken.setdefault(group, Counter())[key] += 1
        sent = self.sent.get(key)
        if sent is not None and now_ms < sent.due_ms - CLOCKS_MS:
            self.early.append(key)

    def missing(self, group: str, kinds: tuple[str, ...]) -> list[str]:
        """What was acknowledged and the group has not got."""
        taken = self.taken.get(group, Counter())
        return [
            key
            for key, sent in self.sent.items()
            if sent.is_wanted and key.startswith(kinds) and key not in taken
        ]

    def unwanted(self) -> list[str]:
        """What was rolled back, and came nevertheless."""
        return sorted(
            {key for taken in self.taken.values() for key in taken if not self._may_come(key)}
        )

    def _may_come(self, key: str) -> bool:
        return key not in self.sent or self.sent[key].is_wanted

    def doubled(self, group: str) -> float:
        """Which share of what the group got it had already."""
        taken = self.taken.get(group, Counter())
        return 1 - len(taken) / taken.total() if taken else 0.0
