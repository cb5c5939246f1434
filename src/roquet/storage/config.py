"""The configuration of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roquet.storage.fetch import FetchLimits


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Folders, file sizes and rules of a store; sizes in bytes, Apache's defaults."""

    root: Path
    commit_log_folders: Sequence[Path]
    commit_log_file_size: int = 1024 * 1024 * 1024
    consume_queue_file_size: int = 300_000 * 20
    index_enabled: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    verify_on_recovery: bool = True
    delay_levels_ms: tuple[int, ...] = ()
    limits: FetchLimits = field(default_factory=lambda: FetchLimits(8 << 30))
    reads_only_durable: bool = False
    """Whether consumers and slaves see a record only once it is durable. Otherwise a power failure
    could take it back after it was seen, and its queue offset would mean two messages."""
    store_host: bytes = bytes(8)
    """Address and port that new records name as theirs."""
    read_only_log_folders: Sequence[Path] = ()
    """Folders with more segments of the log, which are read but get no new one."""
    pooled: bool = False
    """Whether records wait in memory until `commit` writes them to the log's file."""
    busy_ms: int = 0
    """When a turn's appends have taken longer than this, the next ones are refused; 0: never."""
    ext_file_size: int | None = None
    """Size of a file with extension units; None: queue entries have no units."""
    requires_durable_log: bool = False
    """Whether `open` refuses a store whose log has lost the files at its end. On a master new
    records would get the physical and queue offsets of the lost ones. A slave copies the lost ones
    again."""
    fullest: float = 0.85
    """A folder whose drive is used beyond this share gets no new segment of the log while another
    folder can have it."""
