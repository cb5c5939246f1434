"""What servers take from their peers at most, as configuration files say it; all but the idle time are ours.

Netty bounds none of this: it holds whatever a peer asked for and does not read, and every frame that is half there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.common.settings import setting
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX

SLOWEST: Final = 16 * 1024
"""Bytes per second. Beside the times below a peer gets the time that so slow a line needs: 4 MiB at 50 KB/s pass, a
byte a minute does not."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Sizes in bytes, times in ms unless the name says otherwise; 0 connections: no limit of its own.

    Answers are what was made for a peer and not taken by it. Requests are what came from it and is not answered: half
    frames, whole ones that wait, and those whose answer comes later.
    """

    server_channel_max_idle_time_seconds: float = setting(120, at_least=1)
    partial_request_timeout: int = setting(120_000, at_least=1)
    connections_max: int = setting(0, at_least=0)
    connections_per_address_max: int = setting(0, at_least=0)
    answer_bytes_max: int = setting(1 << 30, at_least=1 << 20)
    answer_bytes_per_connection_max: int = setting(4 << 20, at_least=1)
    request_bytes_max: int = setting(512 << 20, at_least=FRAME_SIZE_MAX)
    request_bytes_per_connection_max: int = setting(
        FRAME_SIZE_MAX, at_least=4096, at_most=FRAME_SIZE_MAX
    )
    loop_delay_warning_ms: int = setting(50, at_least=0)
    """A read whose requests take so long to answer is told of in the log; 0: none is."""

    @property
    def idle_s(self) -> float:
        """A connection ends that was silent for so long, or whose peer took no byte of what waits for it."""
        return self.server_channel_max_idle_time_seconds

    @property
    def partial_s(self) -> float:
        """So long a frame may take, beside the time that `SLOWEST` gives it for its size."""
        return self.partial_request_timeout / 1000


CALLER: Final = PeerLimits(answer_bytes_max=1 << 62, request_bytes_max=1 << 62)
"""For connections that were opened from here: what waits in them is what this process itself wants to send, and what it
asked for. Only the times end them."""
