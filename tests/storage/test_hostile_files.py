"""Whatever the files of a store say: it opens, or says which file it cannot use, and gives the
right messages only.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roquet.common.steps import finished
from roquet.errors import CorruptRecord, StoreError
from roquet.protocol.filters.tags import TagFilter, tag_filter
from roquet.protocol.records.message import KEYS
from roquet.protocol.records.record import decode
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import Fetched
from roquet.storage.index.layout import entry_at
from roquet.storage.queues.consume_queue import ENTRY
from roquet.storage.store import Store
from tests.simulation.disk import Drive, StoredFile
from tests.storage.records import append_one, found_by_key

ROOT = Path("/s")
SLOTS, ENTRIES = 20, 100
CONFIG = StoreConfig(
    ROOT,
    [ROOT / "commitlog"],
    8192,
    20 * 50,
    index_slots=SLOTS,
    index_entries=ENTRIES,
    ext_file_size=1000,
)
COUNT = 90
TOPICS = ("T", "U")
LONGS = (-(2**63), -1, 0, 1, 100, 8191, 8192, 1 << 40, 2**63 - 1)
INTS = (-(2**31), -1, 0, 1, 90, 91, 300, 2**31 - 1)

Damage = Callable[[Drive, random.Random], None]


def opened(drive: Drive) -> Store:
    store = Store(CONFIG, lambda: 1_700_000_000_000, drive.mount())
    store.open()
    return store


def filled(drive: Drive, *, is_clean: bool) -> dict[tuple[str, int], bytes]:
    """A store of messages in two queues; the record of each."""
    store = opened(drive)
    for number in range(COUNT):
        key = b"%d" % number
        topic = TOPICS[number % 2]
        append_one(
            store,
            store.queue(topic, 0),
            key,
            b"KEYS\x01" + key,
            [key],
            number,
            born_host=b"\x7f\0\0\x01\0\0\1\2",
        )
        if number == 60:
            store.end_turn()
            store.make_checkpoint()
    store.end_turn()
    finished(store.flush_index())
    places = {
        (topic, n): store.queue(topic, 0).entry(n)
        for topic in TOPICS
        for n in range(store.max_offset(topic, 0))
    }
    records = {
        key: store.log.record_at(entry[0]) or b""
        for key, entry in places.items()
        if entry is not None
    }
    if is_clean:
        store.close()
    drive.unmount()
    return records


def files(drive: Drive, folder: str) -> list[tuple[Path, StoredFile]]:
    return [
        (path, file) for path, file in sorted(drive.names.files.items()) if folder in path.parts
    ]


def write(file: StoredFile, at: int, data: bytes) -> None:
    data = data[: max(0, file.size - at)]
    file.cached[at : at + len(data)] = file.durable[at : at + len(data)] = data


def scribble(folder: str) -> Damage:
    """Random bytes somewhere."""

    def damage(drive: Drive, chance: random.Random) -> None:
        for _, file in chance.sample(found := files(drive, folder), min(len(found), 2)):
            size = chance.choice((1, 8, 100, file.size))
            write(file, chance.randrange(file.size or 1), chance.randbytes(size))

    return damage


def entries(drive: Drive, chance: random.Random) -> None:
    """Queue entries that point anywhere."""
    for _, file in files(drive, "consumequeue"):
        for _ in range(chance.choice((0, 1, 5))):
            at = chance.choice((*LONGS, chance.randrange(8192)))
            write(
                file,
                20 * chance.randrange(50),
                ENTRY.pack(at, chance.choice(INTS), chance.choice(LONGS)),
            )


def another_message(drive: Drive, chance: random.Random) -> None:
    """A queue entry that names a message of another queue or offset."""
    _, file = chance.choice(files(drive, "consumequeue"))
    _, other = chance.choice(files(drive, "consumequeue"))
    at = 20 * chance.randrange(45)
    write(file, 20 * chance.randrange(45), bytes(other.cached[at : at + 20]))


def headers(drive: Drive, chance: random.Random) -> None:
    """Fields of records' headers, sizes among them."""
    for _, file in files(drive, "commitlog"):
        at = 0
        while (
            at + 91 < file.size and (size := int.from_bytes(file.cached[at : at + 4], "big")) >= 91
        ):
            if chance.random() < 0.05:
                field = chance.choice((0, 4, 8, 12, 20, 28, 36, 56, 84, 88, size - 8))
                write(file, at + field, chance.choice((b"\xff", b"\0\0\0\0", chance.randbytes(8))))
            at += size


def checkpoint(drive: Drive, chance: random.Random) -> None:
    """Random, or a mark that is right but for what it says."""
    data = bytearray(chance.randbytes(4096))
    if chance.random() < 0.7:
        data[64:120] = Struct(">7q").pack(*(chance.choice((*LONGS, 5000, 300)) for _ in range(7)))
        data[120:124] = zlib.crc32(data[64:120]).to_bytes(4, "big")
    drive.mount().replace(ROOT / "checkpoint", bytes(data[: chance.choice((0, 5, 24, 4096))]))
    drive.unmount()


def index(drive: Drive, chance: random.Random) -> None:
    """Counts, slots and chains; also ones that lead in a circle."""
    for _, file in files(drive, "index"):
        for _ in range(10):
            at = chance.choice((chance.randrange(0, 40, 4), 40 + 4 * chance.randrange(SLOTS)))
            entry = entry_at(SLOTS, chance.randrange(ENTRIES)) + chance.choice((0, 4, 12, 16))
            number = chance.choice((*INTS, chance.randrange(ENTRIES)))
            write(file, chance.choice((at, entry)), number.to_bytes(4, "big", signed=True))


def sizes(drive: Drive, chance: random.Random) -> None:
    """Files that are too short or too long."""
    path, file = chance.choice(
        [each for each in files(drive, str(ROOT)[1:]) if each[0].name[0] in "02"]
    )
    drive.names.files[path] = file.resized(chance.choice((0, 1, file.size // 2, file.size + 20)))


def strange_names(drive: Drive, chance: random.Random) -> None:
    disk = drive.mount()
    for folder in ("T/²", "T/07", "T/-1", "T/99999999999", "a b/0", "\udcff/0", "T/x"):
        disk.replace(
            ROOT / "consumequeue" / folder / f"{0:020d}", bytes(CONFIG.consume_queue_file_size)
        )
    name = chance.choice(("²" * 20, "9" * 20, "1" * 20, "٣" * 20))
    folder = chance.choice(("commitlog", "consumequeue/T/0", "index", "consumequeue_ext/T/0"))
    disk.replace(ROOT / folder / name[: 17 if folder == "index" else 20], b"x" * 100)
    drive.unmount()


DAMAGES: tuple[Damage, ...] = (
    scribble("commitlog"),
    scribble("consumequeue"),
    scribble("consumequeue_ext"),
    scribble("index"),
    entries,
    another_message,
    headers,
    checkpoint,
    index,
    sizes,
    strange_names,
)


def check(store: Store, records: dict[tuple[str, int], bytes]) -> None:
    """Every fetch gives the messages that were stored at these offsets, or none."""
    for topic in TOPICS:
        for offset in (-1, *range(COUNT // 2 + 3), 1 << 40):
            for wanted in (TagFilter(), tag_filter("x")):
                fetched = store.fetch(topic, 0, offset, 3, wanted)
                assert fetched.next_offset >= 0
                check_records(fetched, topic, offset, records)
        store.offset_at_time(topic, 0, 1_700_000_000_000)
        store.store_time(topic, 0, 3)
        store.is_in_memory(topic, 0, 3)
        for number in range(0, COUNT, 7):
            for record in found_by_key(store, topic, f"{number}", 32, 0, 1 << 62).records:
                assert decode(record).topic == topic
                assert decode(record).properties[KEYS] == f"{number}"
    store.remark  # noqa: B018


def check_records(
    fetched: Fetched, topic: str, offset: int, records: dict[tuple[str, int], bytes]
) -> None:
    data = b"".join(fetched.records)
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        try:
            record = decode(data, at, verify=True)
        except CorruptRecord:
            return  # a damaged message, which its reader sees by its checksum
        assert record.topic == topic
        assert offset <= record.queue_offset < max(fetched.next_offset, offset + 1)
        original = decode(records[topic, record.queue_offset])
        assert record.body == original.body
        at += size


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3),
    st.integers(0, 1 << 32),
    st.booleans(),
)
def test_it_opens_or_says_why_and_gives_the_right_messages(
    damages: list[Damage], seed: int, is_clean: bool
) -> None:
    drive, chance = Drive(random.Random(seed)), random.Random(seed)
    records = filled(drive, is_clean=is_clean)
    for damage in damages:
        damage(drive, chance)
    try:
        store = opened(drive)
    except StoreError:
        return
    check(store, records)
    with suppress(OSError):
        place = append_one(store, store.queue("T", 0), b"new", b"KEYS\x01x")
        records["T", store.max_offset("T", 0) - 1] = store.log.record_at(place) or b""
    drive.unmount()
    with suppress(StoreError):
        check(opened(drive), records)


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_entry_that_names_another_message_is_passed_over(*, is_clean: bool) -> None:
    drive = Drive(random.Random(1))
    records = filled(drive, is_clean=is_clean)
    _, file = files(drive, "consumequeue")[0]
    write(file, 20 * 7, bytes(file.cached[20 * 9 : 20 * 10]))
    store = opened(drive)
    found = [decode(data).queue_offset for data in store.fetch("T", 0, 6, 3, TagFilter()).records]
    assert found[:1] == [6]
    check(store, records)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("at", range(0, 45, 4))
def test_a_queue_with_a_damaged_entry_loses_none_of_the_others(at: int, *, is_clean: bool) -> None:
    """The queue is searched by halves: it must not end where the damage happens to be met."""
    drive = Drive(random.Random(1))
    filled(drive, is_clean=is_clean)
    _, file = files(drive, "consumequeue")[0]
    write(file, 20 * at, ENTRY.pack(-5, -5, 0))
    store = opened(drive)
    append_one(store, store.queue("T", 0), b"new")
    assert store.max_offset("T", 0) == COUNT // 2 + 1
    got = set[int]()
    for offset in range(COUNT // 2):
        got |= {
            decode(data).queue_offset
            for data in store.fetch("T", 0, offset, 1, TagFilter()).records
        }
    assert got >= set(range(COUNT // 2)) - {at}
