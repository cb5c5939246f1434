"""Headers about members of groups, and of requests to a client: codes 35, 38, 40, 307, 309.

See docs/protocol/request-codes.md#clients-to-brokers and
docs/protocol/request-codes.md#brokers-to-clients.
"""

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
class RunningInfoHeader(Header):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(frozen=True, slots=True)
class ConsumeDirectlyHeader(Header):
    """Code 309. `msg_id` is an offset message id. A broker that relays it adds its name."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeader(Header):
    """Codes 38 and 40: one group."""

    consumer_group: str
