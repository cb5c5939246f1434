"""Settings that limit what a server holds for its peers. Apache has only the idle time.

Netty limits nothing else: it keeps all answers that a peer does not read, and every partial frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.common.settings import setting
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX

SLOWEST: Final = 16 * 1024
"""Bytes per second of the slowest line that is served.

A peer gets the timeouts below plus the time that its bytes take at this rate: 4 MiB at 50 KB/s
pass, a byte per minute does not.
"""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Limits of a server. Sizes in bytes; times in ms unless the name says seconds.

    "answer bytes" are answers that the peer has not read. "request bytes" are requests that are not
    answered: partial frames, frames that wait, and requests that are answered later.
    0 for a number of connections sets no limit.
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
    """Requests of one read that take this long are logged; 0: none are."""

    @property
    def idle_s(self) -> float:
        """Seconds after which a connection is closed that is silent or whose peer reads nothing."""
        return self.server_channel_max_idle_time_seconds

    @property
    def partial_s(self) -> float:
        """Seconds that a frame may take, in addition to its size at the rate `SLOWEST`."""
        return self.partial_request_timeout / 1000


CALLER: Final = PeerLimits(answer_bytes_max=1 << 62, request_bytes_max=1 << 62)
"""Limits of connections that this process opened: times only.

Their buffers hold what this process itself sends, and responses that it asked for.
"""
