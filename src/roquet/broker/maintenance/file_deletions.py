"""The files of a store that wait for their deletion; a deletion that fails is retried."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import Final

from roquet.common.loop_time import now_s
from roquet.common.runtime import Runtime
from roquet.storage.files.deletion import Deletion

log = logging.getLogger(__name__)

PAUSE_S_MAX: Final = 600.0


class _Sequence:
    """Files that are deleted in this order, so that no gap arises between the files that are left.

    Invariant: `tried_at_s` is when the first file may be tried next (event loop clock).
    """

    __slots__ = ("deletions", "failures", "pause_s", "tried_at_s")

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.deletions: deque[Deletion] = deque()
        self.failures = 0
        self.tried_at_s = 0.0

    def failed(self, retry_s: float, now_s: float) -> None:
        """Try again after a pause that doubles with each failure."""
        self.tried_at_s = now_s + min(retry_s * 2**self.failures, PAUSE_S_MAX)
        self.failures = min(self.failures + 1, 30)

    def succeeded(self) -> bool:
        """Forget the failures. Returns whether there were any."""
        had_failed = self.failures > 0
        self.failures = 0
        return had_failed


class FileDeletions:
    """Files of a store that wait for their deletion, in sequences.

    A file that cannot be deleted holds up the files after it in its sequence, but no other
    sequence. Failures are logged when the first sequence begins to fail and when none fails any
    more.

    Invariant: a file is deleted after the files that were added to its sequence before it.

    :param retry_s: the pause before the first retry; it doubles with each failure, up to
        `PAUSE_S_MAX`.
    """

    def __init__(self, runtime: Runtime, retry_s: float) -> None:
        self._runtime = runtime
        self._retry_s = retry_s
        self._sequences: dict[Path, _Sequence] = {}

    def __len__(self) -> int:
        return sum(len(sequence.deletions) for sequence in self._sequences.values())

    def add(self, name: Path, deletion: Deletion, pause_s: float) -> None:
        """Append a file to the sequence of this name.

        :param pause_s: the pause after each deletion in the sequence, which leaves the drive to
            sends and pulls.
        """
        sequence = self._sequences.get(name)
        if sequence is None:
            sequence = self._sequences[name] = _Sequence(pause_s)
        sequence.deletions.append(deletion)

    async def run(self) -> None:
        """Delete all files that can be deleted now."""
        for name, sequence in list(self._sequences.items()):
            if now_s() >= sequence.tried_at_s:
                await self._delete(sequence)
            if not sequence.deletions:
                del self._sequences[name]

    async def _delete(self, sequence: _Sequence) -> None:
        while sequence.deletions:
            deletion = sequence.deletions[0]
            try:
                await self._runtime.blocking(deletion)
            except OSError as error:
                self._failed(sequence, deletion, error)
                return
            sequence.deletions.popleft()
            if sequence.succeeded() and not self._is_failing:
                log.info("expired files can be deleted again")
            await asyncio.sleep(sequence.pause_s)

    @property
    def _is_failing(self) -> bool:
        return any(sequence.failures for sequence in self._sequences.values())

    def _failed(self, sequence: _Sequence, deletion: Deletion, error: OSError) -> None:
        if not self._is_failing:
            log.error(
                "expired file cannot be deleted, will be retried, the files after it wait;"
                " make it deletable or delete it: path=%s error=%s",
                deletion.path,
                error,
            )
        sequence.failed(self._retry_s, now_s())
