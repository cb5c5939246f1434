"""Which topics of a simulated cluster somebody may delete, and make anew, at any moment."""

from __future__ import annotations

from typing import Final

from roquet.protocol.records.message import NOT_SENDABLE
from tests.fuzz.broker.hostile import TOPICS
from tests.golden.requests import known_requests

PASSING: Final = "passing-"
"""How the names begin of those that an operator makes and deletes."""
_OF_STRANGERS: Final = frozenset(
    request.fields[name] for requests in known_requests().values() for request in requests
    for name in ("topic", "b") if name in request.fields
) | frozenset(TOPICS) - NOT_SENDABLE  # fmt: skip


def may_go(topic: str) -> bool:
    return topic.startswith(PASSING) or topic in _OF_STRANGERS
