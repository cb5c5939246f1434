"""The reaction of a broker to a failed sync of its store.

The broker accepts no messages, and ends or only serves reads.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from roquet.broker.config.store import SyncFailureAction
from roquet.broker.delivery.ack_gate import AckGate
from roquet.errors import DriveFailed, UnreadableFile
from roquet.replication.server import HaServer

log = logging.getLogger(__name__)

HAND_OVER_S: Final = 5.0
"""The longest time that a master whose drive has failed waits for its slaves to copy its log."""
HAND_OVER_LOOK_S: Final = 0.05
_THEN: Final = {
    SyncFailureAction.STOP: "the broker ends",
    SyncFailureAction.READ_ONLY: "the broker serves what is on the drive, accepts no messages",
}


class DriveFailure:
    """The callback of the store for a failed sync.

    Answers the sends that wait for the disk with an error, then runs the configured action.

    Invariant: called at most once in the life of a broker; its effect is never undone (decision
    0025).

    :param end: ends the broker's process.
    :param only_read: lets the broker serve reads only.
    """

    def __init__(
        self,
        action: SyncFailureAction,
        ack_gate: AckGate,
        end: Callable[[], None],
        only_read: Callable[[], None],
    ) -> None:
        self._action = action
        self._ack_gate = ack_gate
        self._then = end if action is SyncFailureAction.STOP else only_read

    def __call__(self, failure: OSError) -> None:
        log.critical(
            "sync of the store failed, messages are neither accepted nor acknowledged any more:"
            " file=%s errno=%s action=%s; %s; %s, then restart the broker",
            failure.filename,
            errno.errorcode.get(failure.errno or 0, failure.errno),
            self._action.value,
            _THEN[self._action],
            _first(failure),
        )
        self._ack_gate.disk_failed(str(failure))
        self._then()


async def hand_over(server: HaServer) -> None:
    """Wait up to `HAND_OVER_S` until the slaves have copied the log, after a sync has failed.

    Without SYNC_FLUSH, messages that are not durable here may have been acknowledged, and the
    slaves then have the only copy. With SYNC_FLUSH, slaves only ever see synced bytes.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(HAND_OVER_S):
            while server.slave_count and not server.has_copy(server.log.end):
                await asyncio.sleep(HAND_OVER_LOOK_S)
    server.log_why_closing("a sync of the master's store has failed, the master ends")


def drive_failed(failure: OSError) -> DriveFailed:
    """The error that ends the process after a failed sync."""
    return DriveFailed(
        f"a sync of the store has failed: {failure}; what was not synced before may be lost:"
        f" {_first(failure)}, then restart the broker, or promote a slave"
    )


def _first(failure: OSError) -> str:
    """What the operator must do before the next start: restore a lost file, or check the drive."""
    if isinstance(failure, UnreadableFile):
        return (
            "find what deletes or replaces files of the store, restore this file from a slave or a"
            " backup (without it the broker does not start, or lacks its messages)"
        )
    return "check the system's log and the drive"
