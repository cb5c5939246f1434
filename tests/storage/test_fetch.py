"""What a fetch gives, against a plain reading of its limits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from roquet.broker.metadata.filter_registry import SqlFilter, compiled
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.message import tag_code
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import FetchLimits, FetchStatus
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, records_in

TAGS = ("", "a", "b")
Stored = tuple[int, int, str]
"""Physical offset, size in the log and tag of a message."""


def filled(chance: random.Random, limits: FetchLimits) -> tuple[Store, dict[int, list[Stored]]]:
    """A store whose log and queues have several files, and what is in each queue."""
    config = StoreConfig(
        Path("/store"),
        [Path("/store/commitlog")],
        8192,
        20 * chance.randint(5, 40),
        index_enabled=False,
        limits=limits,
    )
    store = Store(config, lambda: 1_700_000_000_000, Drive(chance).mount())
    store.open()
    stored: dict[int, list[Stored]] = {queue_id: [] for queue_id in range(3)}
    for _ in range(chance.randint(1, 120)):
        queue_id, tag = chance.randrange(3), chance.choice(TAGS)
        for _ in range(chance.choice((1, 1, 7))):
            queue, body = store.queue("T", queue_id), bytes(chance.choice((10, 10, 300)))
            at = append_one(store, queue, body, tag_code=tag_code(tag))
            stored[queue_id].append((at, store.log.end - at, tag))
    return store, stored


def expected(
    left: Sequence[Stored], count_max: int, tags: Sequence[str], limits: FetchLimits, log_end: int
) -> tuple[list[int], int]:
    """Physical offsets of what may be taken of the messages left, and how many were looked at.

    See docs/storage/fetch.md#how-much-one-fetch-gives.
    """
    taken: list[tuple[int, int]] = []
    for looked_at, (at, size, tag) in enumerate(left):
        in_memory = at >= log_end - limits.memory_bytes
        count = min(count_max, limits.count_in_memory if in_memory else limits.count_on_disk)
        bytes_max = limits.size_in_memory if in_memory else limits.size_on_disk
        if len(taken) >= count or (taken and sum(size for _, size in taken) + size > bytes_max):
            return [at for at, _ in taken], looked_at
        if not tags or tag in tags:
            taken.append((at, size))
    return [at for at, _ in taken], len(left)


@pytest.mark.parametrize("seed", range(60))
def test_a_fetch_takes_what_its_limits_let_it_take(seed: int) -> None:
    chance = random.Random(seed)
    limits = FetchLimits(
        chance.choice((1 << 30, 4000)), 32, 8, chance.choice((1 << 18, 3000)), 1500
    )
    store, stored = filled(chance, limits)
    per_file = store.config.consume_queue_file_size // 20
    for queue_id, messages in stored.items():
        for offset in range(len(messages)):
            count_max, wanted = chance.choice((1, 5, 32, 64)), chance.choice(("*", "a", "a || b"))
            tags = [] if wanted == "*" else wanted.split(" || ")
            in_file = messages[offset : (offset // per_file + 1) * per_file]

            fetched = store.fetch("T", queue_id, offset, count_max, TagFilter.parse(wanted))

            places, looked_at = expected(in_file, count_max, tags, limits, store.log.end)
            assert [record.physical_offset for record in records_in(fetched)] == places
            assert fetched.next_offset == offset + looked_at
            assert fetched.status is (
                FetchStatus.FOUND if places else FetchStatus.NO_MATCHED_MESSAGE
            )
            assert fetched.lag == store.log.end - in_file[looked_at - 1][0]
            assert (fetched.min_offset, fetched.max_offset) == (0, len(messages))


def test_a_fetch_that_reads_much_in_vain_lets_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A filter by properties has to read each record; 800 of 4 MiB would hold up everybody for
    seconds.
    """
    limits = FetchLimits(1 << 30, 32, 8, 1 << 18, 1500)
    config = StoreConfig(
        Path("/store"),
        [Path("/store/commitlog")],
        1 << 16,
        20 * 1000,
        index_enabled=False,
        limits=limits,
    )
    store = Store(config, lambda: 1_700_000_000_000, Drive(random.Random(1)).mount())
    store.open()
    for number in range(60):
        pairs = b"a\x01%d\x02" % number
        append_one(store, store.queue("T", 0), bytes(1000), pairs)
    monkeypatch.setattr("roquet.storage.fetch._DROPPED_MAX", 10_000)
    wanted, offset, looks, found = SqlFilter(compiled("SQL92", "a = '55'")), 0, 0, []
    while offset < 60:
        fetched = store.fetch("T", 0, offset, 32, wanted)
        assert 0 < fetched.next_offset - offset <= 10
        offset, looks = fetched.next_offset, looks + 1
        found += [each.queue_offset for each in records_in(fetched)]
    assert found == [55]
    assert looks >= 6
