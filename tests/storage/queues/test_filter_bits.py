"""The bits of filters in the extension units of queue entries.

See docs/storage/consume-queue.md#extension-units and docs/storage/consume-queue.md#filter-bits.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.metadata.filter_registry import FilterBitsOf, FilterRegistry, SqlFilter
from roquet.protocol.bodies.filter_table import FilterTable
from roquet.protocol.bodies.tables import Subscription, parse
from roquet.protocol.filters.bloom import BloomShape
from roquet.protocol.filters.tags import SQL92
from roquet.storage.config import StoreConfig
from roquet.storage.queues.ext import ExtendedQueue, ExtUnit
from roquet.storage.store import Store
from roquet.storetool.check.check import check
from roquet.storetool.files import find_files
from roquet.storetool.read.index_files import Shape
from roquet.storetool.rebuild import Plan, ext_file_size, rebuild
from tests.golden.collection import ROOT
from tests.simulation.disk import Drive
from tests.storage.records import append_one, bodies_in, records_in
from tests.storetool.stores import assert_sound

GOLDEN: Final = ROOT / "filters" / "store"
TOPIC: Final = "GoldenFilters"
NOW: Final = 1_700_000_000_000
BLOOM: Final = BloomShape()


def golden_filters() -> FilterRegistry:
    """Those that Apache's broker saved."""
    saved = parse((GOLDEN / "config" / "consumerFilter.json").read_bytes(), FilterTable.from_json)
    filters = FilterRegistry(BLOOM, 1 << 62)
    filters.restore(saved, NOW)
    return filters


def opened(folder: Path, filters: FilterRegistry) -> Store:
    config = StoreConfig(
        folder, [folder / "commitlog"], 16_384, 1_000, index_enabled=False, ext_file_size=1_024
    )
    store = Store(config, lambda: NOW, None, FilterBitsOf(filters, BLOOM))
    store.open()
    return store


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    for part in ("commitlog", "consumequeue", "consumequeue_ext"):
        shutil.copytree(GOLDEN / part, tmp_path / part)
    return tmp_path


def units(store: Store) -> list[ExtUnit]:
    """Of all messages of the topic, queue by queue."""
    found = []
    for queue_id in range(4):
        queue = store.queue(TOPIC, queue_id)
        assert isinstance(queue, ExtendedQueue)
        found += [unit for at in range(queue.max_offset) if (unit := queue.unit(at)) is not None]
    return found


def test_notes_are_apaches_to_the_last_bit(golden: Path) -> None:
    store = opened(golden, golden_filters())
    theirs = units(store)
    store.close()
    for part in ("consumequeue", "consumequeue_ext"):
        shutil.rmtree(golden / part)
    store = opened(golden, golden_filters())
    ours = units(store)
    store.close()
    assert len(theirs) == len(ours) == 24
    assert [(unit.tag_code, unit.store_ms) for unit in ours] == [
        (unit.tag_code, unit.store_ms) for unit in theirs
    ]
    with_bits = [(one, other) for one, other in zip(ours, theirs, strict=True) if other.bits]
    assert len(with_bits) == 16, "Apache's broker knew no filter when it stored the first eight"
    assert all(one == other for one, other in with_bits)
    assert len({other.bits for _, other in with_bits}) > 3


def fetched(store: Store, queue_id: int, wanted: SqlFilter) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while offset < store.max_offset(TOPIC, queue_id):
        answer = store.fetch(TOPIC, queue_id, offset, 32, wanted)
        found += [record.body for record in records_in(answer)]
        offset = answer.next_offset
    return found


@pytest.mark.parametrize("group", ["GoldenSmall", "GoldenBlue", "GoldenNot"])
def test_apaches_notes_lead_to_the_messages_that_are_wanted(golden: Path, group: str) -> None:
    filters = golden_filters()
    store = opened(golden, filters)
    wanted = filters.wanted(TOPIC, group)
    assert wanted is not None
    by_record = SqlFilter(wanted.sql)
    with_notes = [fetched(store, queue_id, wanted) for queue_id in range(4)]
    assert with_notes == [fetched(store, queue_id, by_record) for queue_id in range(4)]
    assert 6 <= sum(map(len, with_notes)) <= 18
    passing = sum(wanted.may_pass(unit.store_ms, unit.bits) for unit in units(store))
    assert passing < 24, "the units spare nobody anything"
    store.close()


def test_a_store_with_bits_is_sound_and_one_rebuilt_without_them_gives_the_same(
    golden: Path,
) -> None:
    filters = golden_filters()
    wanted = filters.wanted(TOPIC, "GoldenBlue")
    assert wanted is not None
    store = opened(golden, filters)
    before = [fetched(store, queue_id, wanted) for queue_id in range(4)]
    store.close()
    assert_sound(check(find_files(golden), None))
    rebuild(find_files(golden), Plan(True, False, 1_000, Shape(), (), ext_file_size(golden)))
    assert_sound(check(find_files(golden), None))
    store = opened(golden, filters)
    assert {unit.bits for unit in units(store)} == {b""}
    assert [fetched(store, queue_id, wanted) for queue_id in range(4)] == before
    store.close()


class Lives:
    """A store in memory, whose broker forgets, crashes and comes back."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.drive = Drive(self.chance)
        self.clock_ms = NOW
        self.saved = FilterTable()
        self.versions = 0
        self.wants: dict[tuple[str, str], list[Subscription]] = {}
        self.start()

    def start(self) -> None:
        """As a broker does it."""
        self.filters = FilterRegistry(BLOOM, 50_000)
        self.filters.restore(self.saved, self.clock_ms)
        root = Path("/s")
        config = StoreConfig(
            root, [root / "commitlog"], 8192, 20 * 30, index_enabled=False, ext_file_size=400
        )
        self.store = Store(
            config, lambda: self.clock_ms, self.drive.mount(), FilterBitsOf(self.filters, BLOOM)
        )
        self.store.open()
        if self.store.was_crashed:
            self.filters.distrust_notes_until(self.store.newest_ms)

    def act(self) -> None:
        self.clock_ms += self.chance.choice((0, 0, 1, 1, 10, 1000, 60_000, -500))
        action = self.chance.choices(
            (self.put, self.beat, self.leave, self.save, self.stop, self.crash, self.checkpoint),
            (60, 20, 6, 6, 2, 5, 5),
        )
        action[0]()

    def put(self) -> None:
        queue = self.store.queue(self.chance.choice("TU"), 0)
        for _ in range(self.chance.choice((1, 3, 20))):
            properties = (
                f"a\x01{self.chance.randrange(6)}\x02b\x01{self.chance.choice('xy')}".encode()
            )
            append_one(self.store, queue, b"body", properties)

    def beat(self) -> None:
        """By a member that wants something new, or the same as ever, or that still has what it
        wanted long ago.
        """
        group, topic = self.chance.choice("ghi"), self.chance.choice("TU")
        known = self.wants.setdefault((group, topic), [])
        if not known or self.chance.random() < 0.4:
            expression = self.chance.choice(
                ("a > 3", "a < 2", "b = 'x'", "a = 5 OR b = 'y'", "FALSE", "a > 'x'")
            )
            self.versions += 1
            known.append(Subscription(topic, expression, self.versions, SQL92))
        wanted = [
            self.chance.choice((each[-1], each[-1], *each))
            for (of, _), each in self.wants.items()
            if of == group
        ]
        self.filters.register(group, wanted, max(self.clock_ms, self.store.newest_ms))

    def leave(self) -> None:
        self.filters.unregister(self.chance.choice("ghi"), self.clock_ms)

    def save(self) -> None:
        self.saved = self.filters.to_table(self.clock_ms)

    def checkpoint(self) -> None:
        """What is in queues now stays there as it is, also after a crash."""
        self.store.make_checkpoint()

    def stop(self) -> None:
        self.save()
        self.store.close()
        self.drive.unmount()
        self.start()

    def crash(self) -> None:
        self.store.abandon()
        self.chance.choice((self.drive.crash, self.drive.unmount))()
        self.start()

    def check(self) -> int:
        """Whoever reads with the units gets what the properties say; how many messages the units
        spared them.
        """
        spared = 0
        for topic in "TU":
            for group in "ghi":
                wanted = self.filters.wanted(topic, group)
                if wanted is None:
                    continue
                queue = self.store.queue(topic, 0)
                for offset in range(queue.min_offset, queue.max_offset):
                    at, size, _ = queue.entry(offset) or (0, 0, 0)
                    bits = queue.filter_bits(offset)
                    if bits is not None and not wanted.may_pass(*bits):
                        spared += 1
                        record = self.store.log.record_bytes(at, size)
                        assert record is not None
                        assert not wanted.wants_record(record), (
                            f"{group} never sees {topic} {offset}"
                        )
        return spared


@pytest.mark.also_seeds(11)
def test_no_message_is_lost_to_a_note(seed: int) -> None:
    lives = Lives(seed)
    spared = 0
    for number in range(200):
        lives.act()
        if number % 5 == 0:
            spared += lives.check()
    assert spared > 50, "the units were good for nothing"
    assert len(bodies_in(lives.store, "T")) == lives.store.max_offset("T", 0)
