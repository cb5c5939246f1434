"""The header of requests for a topic's route: code 105.

Every client loads it, and no other header of a name server's requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.protocol.headers import Header


@dataclass(frozen=True, slots=True)
class RouteHeader(Header):
    topic: str
    accept_standard_json_only: bool = False
