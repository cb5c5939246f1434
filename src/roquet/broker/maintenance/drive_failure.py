"""What a broker does when a sync of its store has failed: it takes nothing more, and ends or only serves reads."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from typing import Final

from roquet.broker.config.store import SyncFailureAction
from roquet.broker.delivery.ack_gate import AckGate
from roquet.errors import DriveFailed, UnreadableFile

log = logging.getLogger(__name__)

_THEN: Final = {
    SyncFailureAction.STOP: "the broker ends",
    SyncFailureAction.READ_ONLY: "the broker serves what is on the drive, and takes nothing",
}


class DriveFailure:
    """Keeps: it is told once, and what it begins is not taken back in this life of the broker (decision 0025).

    :param then: what either action begins with: the end of the broker's process, or its life as a reader.
    """

    def __init__(
        self,
        action: SyncFailureAction,
        ack_gate: AckGate,
        then: Mapping[SyncFailureAction, Callable[[], None]],
    ) -> None:
        self._action = action
        self._ack_gate = ack_gate
        self._then = then[action]

    def __call__(self, failure: OSError) -> None:
        log.critical(
            "a sync of the store has failed, no message is acknowledged or taken any more: file=%s errno=%s action=%s: "
            "%s; %s, then start the broker anew",
            failure.filename,
            errno.errorcode.get(failure.errno or 0, failure.errno),
            self._action.value,
            _THEN[self._action],
            _first(failure),
        )
        self._ack_gate.disk_failed(str(failure))
        self._then()


def drive_failed(failure: OSError) -> DriveFailed:
    """What ends the process."""
    return DriveFailed(
        f"a sync of the store has failed: {failure}; what was not synced before may be lost: {_first(failure)}, then "
        "start the broker anew, or let a slave take its place"
    )


def _first(failure: OSError) -> str:
    """What to do before the next start: a drive fails, or somebody takes a file of the log away."""
    if isinstance(failure, UnreadableFile):
        return (
            "see who deletes or replaces files of the store, restore this one from a slave or a backup (without it the "
            "broker does not start, or lacks what it held)"
        )
    return "look at the system's log and at the drive"
