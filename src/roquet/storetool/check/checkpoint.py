"""Checks the checkpoint against log, queues and index (docs/storage/checkpoint.md)."""

from __future__ import annotations

from typing import Final

from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storetool.check.findings import FindingKind, Findings
from roquet.storetool.files import StoreFiles, read_at
from roquet.storetool.read.index_files import read_header
from roquet.storetool.read.log_scanner import record_at
from roquet.storetool.read.queue_entries import entries_of

_NAME: Final = "checkpoint"
_MARK_AT: Final = 64
_MARK_SIZE: Final = 60
_NO_INDEX: Final = -1


def check_checkpoint(
    files: StoreFiles, findings: Findings, checkpoint: Checkpoint, last_ms: int
) -> None:
    """Add a finding for everything that the checkpoint says is durable and that is missing.

    Recovery would begin after it, and not rebuild it.

    :param last_ms: store time of the log's newest record (ms since the epoch).
    """
    times = (checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms)
    for number, (what, time_ms) in enumerate(zip(("log", "queues", "index"), times, strict=True)):
        if time_ms > last_ms:
            text = (
                f"says {time_ms} ms for the {what}, "
                f"the log's newest record was stored at {last_ms} ms"
            )
            findings.add(FindingKind.CHECKPOINT, _NAME, 8 * number, text)
    if checkpoint.mark is not None:
        for why in _wrong(files, checkpoint.mark, findings):
            findings.add(
                FindingKind.CHECKPOINT,
                _NAME,
                _MARK_AT,
                f"the mark at {checkpoint.mark.position}: {why}",
            )
    elif any(read_at(files.root / _NAME, _MARK_AT, _MARK_SIZE)):
        findings.add(
            FindingKind.CHECKPOINT, _NAME, _MARK_AT, "the mark does not match its checksum"
        )


def _wrong(files: StoreFiles, mark: CheckpointMark, findings: Findings) -> list[str]:
    """Return what the checkpoint mark says that does not fit log, index and queues."""
    found: list[str] = []
    record = record_at(files.log, mark.last_at)
    if mark.last_at >= files.log.start:
        if isinstance(record, str):
            found.append(
                f"its last record, at physical offset {mark.last_at}, is missing: {record}"
            )
        elif mark.last_at + record.size > mark.position or record.store_ms != mark.last_ms:
            text = f"its last record, at physical offset {mark.last_at}, is a different one now"
            found.append(text)
    if mark.index_name not in (0, _NO_INDEX):
        path = next((path for path in files.index if int(path.name) == mark.index_name), None)
        count = read_header(path).count if path is not None else 0
        if path is None:
            found.append(f"its index file {mark.index_name:017d} is missing")
        elif count < mark.index_count:
            found.append(
                f"its index file {mark.index_name:017d} has {count} entries, "
                f"it had {mark.index_count}"
            )
    used = sum(entries_of(files, *key).end() > 0 for key in files.queues)
    is_known = (
        findings.by_kind[FindingKind.ENTRY_MISSING] or findings.by_kind[FindingKind.QUEUE_FILE]
    )
    if used < mark.queue_count and not is_known:
        found.append(f"{mark.queue_count} queues had entries then, {used} have entries now")
    return found
