"""A master whose drive has failed lets its slaves copy the rest of its log before it ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from roquet.replication.server import HaServer

HAND_OVER_S: Final = 5.0
"""The longest time that a master whose drive has failed waits for its slaves to copy its log."""
HAND_OVER_LOOK_S: Final = 0.05


async def hand_over(server: HaServer) -> None:
    """Wait up to `HAND_OVER_S` until the slaves have copied the log, after a sync has failed.

    Without SYNC_FLUSH, messages that are not durable here may have been acknowledged, and the
    slaves then have the only copy. With SYNC_FLUSH, slaves only ever see synced bytes.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(HAND_OVER_S):
            while server.slave_count and server.replicated_to < server.log.end:
                await asyncio.sleep(HAND_OVER_LOOK_S)
    server.log_why_closing("a sync of the master's store has failed, the master ends")
