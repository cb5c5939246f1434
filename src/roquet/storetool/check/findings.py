"""The findings of a check: what is wrong, in which file and byte, and what to do about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

KEPT_MAX: Final = 10_000
"""How many findings are kept; the others are only counted. It bounds memory for a store that is
damaged all over."""


class FindingKind(Enum):
    """The kinds of findings; the value is the name in outputs (docs/guide/store.md#check)."""

    LOG_FILE = "log-file"
    RECORD = "record"
    BODY = "body"
    OFFSET = "queue-offset"
    QUEUE_FILE = "queue-file"
    ENTRY = "entry"
    ENTRY_MISSING = "entry-missing"
    EXT_UNIT = "extension-unit"
    INDEX_FILE = "index-file"
    INDEX_ENTRY = "index-entry"
    INDEX_MISSING = "index-missing"
    CHECKPOINT = "checkpoint"


_QUEUES: Final = "stop the broker; `roquet store rebuild --queues` rebuilds the queues from the log"
_INDEX: Final = "stop the broker; `roquet store rebuild --index` rebuilds the index from the log"
_LOG: Final = (
    "stop the broker, copy the file of this name from a slave's or a backup's `commitlog` (the "
    "newest one only from where `roquet store stat` has the same logEnd), then `roquet store "
    "rebuild`; `roquet store dump` saves the readable records"
)
ADVICE: Final = {
    FindingKind.LOG_FILE: "restore the file from a slave or a backup; move away files that do not "
    "belong there",
    FindingKind.RECORD: _LOG,
    FindingKind.BODY: _LOG,
    FindingKind.OFFSET: _LOG,
    FindingKind.QUEUE_FILE: f"move away files that do not belong there; otherwise: {_QUEUES}",
    FindingKind.ENTRY: _QUEUES,
    FindingKind.ENTRY_MISSING: _QUEUES,
    FindingKind.EXT_UNIT: _QUEUES,
    FindingKind.INDEX_FILE: _INDEX,
    FindingKind.INDEX_ENTRY: _INDEX,
    FindingKind.INDEX_MISSING: _INDEX,
    FindingKind.CHECKPOINT: "stop the broker and delete the file; after a crash the next start "
    "then reads the whole log",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    :param offset: the byte in `file`; None if the whole file is meant.
    """

    kind: FindingKind
    file: str
    offset: int | None
    text: str


@dataclass(slots=True)
class Findings:
    """The findings of one check.

    Invariant: `by_kind` counts every finding; `kept` has the first `KEPT_MAX` of them.

    :param remarks: texts about what is no fault, but good to know.
    """

    kept: list[Finding] = field(default_factory=list)
    by_kind: Counter[FindingKind] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def add(self, kind: FindingKind, file: str, offset: int | None, text: str) -> None:
        """Add a finding; the parameters are those of `Finding`."""
        self.by_kind[kind] += 1
        if len(self.kept) < KEPT_MAX:
            self.kept.append(Finding(kind, file, offset, text))

    @property
    def count(self) -> int:
        """The number of findings, also of those that are not kept."""
        return self.by_kind.total()
