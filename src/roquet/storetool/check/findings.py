"""What a check found: where exactly, and what to do about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

KEPT_MAX: Final = 10_000
"""So many findings are kept one by one; all are counted."""


class Kind(Enum):
    """What is wrong; the value names it in output."""

    LOG_FILE = "log-file"
    RECORD = "record"
    BODY = "body"
    OFFSET = "queue-offset"
    QUEUE_FILE = "queue-file"
    ENTRY = "entry"
    ENTRY_MISSING = "entry-missing"
    NOTE = "entry-note"
    INDEX_FILE = "index-file"
    INDEX_ENTRY = "index-entry"
    INDEX_MISSING = "index-missing"
    CHECKPOINT = "checkpoint"


_QUEUES: Final = (
    "stop the broker; `roquet store rebuild --queues` makes the queues anew from the log"
)
_INDEX: Final = "stop the broker; `roquet store rebuild --index` makes the index anew from the log"
_LOG: Final = (
    "stop the broker, copy the file of this name from a slave's or a backup's `commitlog` (the newest one only from "
    "where `roquet store stat` has the same logEnd), then `roquet store rebuild`; "
    "`roquet store dump` saves what can be read"
)
ADVICE: Final = {
    Kind.LOG_FILE: "restore the file from a slave or a backup; move away what does not belong there",
    Kind.RECORD: _LOG,
    Kind.BODY: _LOG,
    Kind.OFFSET: _LOG,
    Kind.QUEUE_FILE: f"move away what does not belong there; else: {_QUEUES}",
    Kind.ENTRY: _QUEUES,
    Kind.ENTRY_MISSING: _QUEUES,
    Kind.NOTE: _QUEUES,
    Kind.INDEX_FILE: _INDEX,
    Kind.INDEX_ENTRY: _INDEX,
    Kind.INDEX_MISSING: _INDEX,
    Kind.CHECKPOINT: "stop the broker and delete the file; after a crash the whole log is read then",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: `offset` is the byte in `file`, None where the whole file is meant."""

    kind: Kind
    file: str
    offset: int | None
    text: str


@dataclass(slots=True)
class Findings:
    """All that was found.

    Keeps: `by_kind` counts every finding; `kept` are the first of them; `remarks` are no faults, but worth a line.
    """

    kept: list[Finding] = field(default_factory=list)
    by_kind: Counter[Kind] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def add(self, kind: Kind, file: str, offset: int | None, text: str) -> None:
        self.by_kind[kind] += 1
        if len(self.kept) < KEPT_MAX:
            self.kept.append(Finding(kind, file, offset, text))

    @property
    def count(self) -> int:
        return self.by_kind.total()
