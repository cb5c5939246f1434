"""Small stores in real files, with a clock that a test moves."""

from __future__ import annotations

from pathlib import Path

from roquet.protocol.records.message import tag_code
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.storage.records import append_one

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


class Clock:
    """Wall time that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


def config(folder: Path, **changes: object) -> StoreConfig:
    values: dict[str, object] = {
        "root": folder,
        "commit_log_folders": [folder / "commitlog"],
        "commit_log_file_size": 4096,
        "consume_queue_file_size": 20 * 10,
        "index_slots": 50,
        "index_entries": 40,
        "store_host": HOST,
    }
    return StoreConfig(**{**values, **changes})  # type: ignore[arg-type]


def opened(folder: Path, clock: Clock, **changes: object) -> Store:
    store = Store(config(folder, **changes), clock.now_ms)
    store.open()
    return store


def put(
    store: Store, body: bytes, *, topic: str = "T", queue_id: int = 0, tag: str = "", key: str = ""
) -> int:
    pairs = [f"UNIQ_KEY\x01{key}"] if key else []
    pairs += [f"TAGS\x01{tag}"] if tag else []
    keys = (key.encode(),) if key else ()
    properties = "\x02".join(pairs).encode()
    at = append_one(store, store.queue(topic, queue_id), body, properties, keys, tag_code(tag))
    store.end_turn()
    return at
