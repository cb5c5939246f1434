"""Stores whose machine went down before a sector of the log was written."""

from __future__ import annotations

from pathlib import Path

from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.storage.records import append_one, bodies_in

FILE = 16_384
SECTOR = 512


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root, [root / "commitlog"], FILE, 20 * 1000, index_slots=50, index_entries=500
    )


def put(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        body = b"%d" % number
        append_one(store, store.queue("T", 0), body.ljust(200, b"."), b"KEYS\x01" + body, [body])
    store.end_turn()


def numbers(store: Store) -> list[int]:
    return [int(body.rstrip(b".")) for body in bodies_in(store, "T")]


def crashed(root: Path, lost: int, *, count: int = 100) -> None:
    """A store whose machine went down: sector `lost` of the log was never written."""
    store = Store(config(root), lambda: 1_700_000_000_000)
    store.open()
    put(store, 0, count)
    store.abandon()
    tear(root, lost)


def tear(root: Path, lost: int) -> None:
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[lost * SECTOR : (lost + 1) * SECTOR] = bytes(SECTOR)
    path.write_bytes(data)


def reopened(root: Path) -> list[int]:
    store = Store(config(root), lambda: 1_700_000_000_000)
    store.open()
    found = numbers(store)
    store.abandon()
    return found
