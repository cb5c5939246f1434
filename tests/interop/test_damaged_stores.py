"""What Apache's broker makes of a store in which ours has stepped over damage, and saved what it
cut off.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.interop.apache import ApacheBroker, ApacheNameServer, require_java
from tests.interop.roquet_cluster import create_topic
from tests.interop.stored import bounds, pull, served
from tests.storage.records import append_one

pytestmark = [pytest.mark.interop, pytest.mark.long]

FILE: Final = 16_384
SECTOR: Final = 512
SETTINGS: Final[dict[str, str | int]] = {
    "mappedFileSizeCommitLog": FILE,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 500,
}


@pytest.fixture(scope="module")
def name_server() -> Iterator[ApacheNameServer]:
    require_java()
    with ApacheNameServer() as server:
        yield server


def opened(root: Path) -> Store:
    store = Store(
        StoreConfig(root, [root / "commitlog"], FILE, 20 * 1000, index_slots=50, index_entries=500),
        lambda: 1_800_000_000_000,
    )
    store.open()
    return store


def put(store: Store, count: int) -> list[int]:
    places: list[int] = []
    for _ in range(count):
        number = store.max_offset("T", 0)
        host = b"\x7f\0\0\x01\0\0\x12\x34"
        places.append(
            append_one(
                store,
                store.queue("T", 0),
                (b"%d" % number).ljust(200, b"."),
                born_ms=1_700_000_000_000,
                born_host=host,
            )
        )
        store.end_turn()
    return places


def damage(root: Path, at: int, data: bytes) -> None:
    path = root / "commitlog" / f"{at - at % FILE:020d}"
    content = bytearray(path.read_bytes())
    content[at % FILE : at % FILE + len(data)] = data
    path.write_bytes(content)


def store_with_hole_and_lost_tail(root: Path, *, behind: int) -> tuple[int, int]:
    """The queue offset of the hole, and where the queue ends; so many messages are behind the
    hole.
    """
    store = opened(root)
    places = put(store, 50)
    put(store, behind)
    store.make_checkpoint()
    torn = put(store, 20)
    store.abandon()
    damage(root, places[30] + 100, b"\xff")
    damage(root, torn[10] + SECTOR - torn[10] % SECTOR, bytes(SECTOR))
    shutil.rmtree(root / "consumequeue")
    store = opened(root)
    end = store.max_offset("T", 0)
    assert (store.dispatch.holes, (root / "lost").is_dir()) == (1, True)
    store.close()
    return 30, end


def test_apaches_broker_cuts_its_log_at_a_hole_in_the_last_files(
    name_server: ApacheNameServer, tmp_path: Path
) -> None:
    """It reads its last three files at each start, also after a clean stop. The folder `lost` it
    leaves alone.
    """
    root = tmp_path / "store"
    hole, end = store_with_hole_and_lost_tail(root, behind=20)
    with ApacheBroker(name_server.address, store_dir=root, properties=SETTINGS) as broker:
        create_topic(broker, "T", 1)
        assert bounds(broker.address, ("T", 0)) == (0, hole)
        assert len(served(broker.address, ("T", 0))) == hole < end
    assert list((root / "lost").iterdir())


def test_apaches_broker_gives_nothing_from_a_hole_on(
    name_server: ApacheNameServer, tmp_path: Path
) -> None:
    """The hole is in front of its last three files: it fails where the blank names no message."""
    root = tmp_path / "store"
    hole, end = store_with_hole_and_lost_tail(root, behind=1000)
    with ApacheBroker(name_server.address, store_dir=root, properties=SETTINGS) as broker:
        create_topic(broker, "T", 1)
        assert bounds(broker.address, ("T", 0)) == (0, end)
        refused = pull(broker.address, ("T", 0), hole)
        assert (refused.code, "newLimit > capacity" in refused.header["remark"]) == (1, True)
        assert pull(broker.address, ("T", 0), hole + 1).code == 0
    store = opened(root)
    assert store.max_offset("T", 0) == end
    store.close()
