"""Who is there: codes 35, 38, 40 (protocol.md 2.2, 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from roquet.protocol.headers import Header


@dataclass(frozen=True, slots=True)
class UnregisterClientHeader(Header):
    SPELLING: ClassVar = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeader(Header):
    """Codes 38 and 40: one group."""

    consumer_group: str
