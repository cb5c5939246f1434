"""What is open, and what is due when.

See docs/storage/transactions.md.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.transactions.open_table import (
    CheckRules,
    Due,
    HalfRecord,
    OpenTransactions,
    ended_halves,
    half_with,
)
from roquet.protocol.records.message import join_properties
from roquet.protocol.records.record import Record

NOW = 1_700_000_000_000
RULES = CheckRules(timeout_ms=6000, checks_max=3, period_ms=60_000, kept_ms=3_600_000)


def half(
    transaction: int, offset: int | None = None, age_ms: int = 0, **more: int | None
) -> HalfRecord:
    born_ms = NOW - age_ms
    stored_ms = more.pop("stored_ms", None) or born_ms
    return HalfRecord(
        transaction,
        transaction if offset is None else offset,
        born_ms,
        stored_ms,
        **more,  # type: ignore[arg-type]
    )


def record(offset: int, body: bytes = b"", **pairs: str) -> Record:
    return Record(
        0,
        0,
        offset,
        1000 * offset,
        0,
        NOW,
        bytes(8),
        NOW + 5,
        bytes(8),
        0,
        0,
        body,
        "T",
        join_properties(pairs),
    )


# what records say


def test_a_record_says_how_often_was_asked_and_how_long_nobody_is_to_be_asked() -> None:
    assert half_with({}, 7, 7, NOW, NOW + 5) == HalfRecord(7, 7, NOW, NOW + 5)
    pairs = {"TRANSACTION_CHECK_TIMES": "2", "CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}
    assert half_with(pairs, 7, 9, NOW, NOW + 5) == HalfRecord(
        7, 9, NOW, NOW + 5, checks=2, immune_ms=30_000
    )


@pytest.mark.parametrize("text", ["-1", "soon", "", "²", "9" * 20, "9" * 5000])
def test_an_immunity_that_is_no_number_is_none(text: str) -> None:
    assert half_with({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}, 7, 7, NOW, NOW).immune_ms is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"12", [12]),
        (b"12,13,", [12, 13]),
        (b"12,x,14", [12, 14]),
        (b"9" * 5000 + b",-3,15", [15]),
        (b"", []),
        (b"\xff", []),
    ],
)
def test_ends_are_read_as_4x_and_as_5x_write_them(body: bytes, named: list[int]) -> None:
    assert ended_halves(record(0, body, TAGS="d")) == named


def test_what_is_tagged_in_another_way_ends_nothing() -> None:
    assert ended_halves(record(0, b"12", TAGS="x")) == []


# what is due


def test_a_producer_is_asked_as_soon_as_the_transaction_is_old_enough() -> None:
    assert RULES.due(half(1, age_ms=5999), NOW) is None
    assert RULES.due(half(1, age_ms=6000), NOW) is Due.ASK


def test_it_is_given_up_after_the_last_check_or_when_its_record_would_go() -> None:
    assert RULES.due(half(1, age_ms=10_000, checks=2), NOW) is Due.ASK
    assert RULES.due(half(1, age_ms=10_000, checks=3), NOW) is Due.DISCARD
    assert RULES.due(half(1, age_ms=3_600_001, checks=1), NOW) is Due.DISCARD
    assert RULES.due(half(1, age_ms=3_600_001), NOW) is Due.ASK, (
        "once more: only the wall clock says so at a start"
    )
    assert RULES.due(half(1, age_ms=3_600_001, immune_ms=10**12), NOW) is Due.ASK


def test_an_immune_one_is_written_again_each_period_and_asked_about_only_then() -> None:
    assert RULES.due(half(1, age_ms=59_999, immune_ms=100_000), NOW) is None
    assert RULES.due(half(1, age_ms=60_000, immune_ms=100_000), NOW) is Due.RENEW
    assert RULES.due(half(1, age_ms=99_999, immune_ms=100_000, stored_ms=NOW - 50_000), NOW) is None
    assert RULES.due(half(1, age_ms=100_000, immune_ms=100_000), NOW) is Due.ASK
    assert RULES.due(half(1, age_ms=2000, immune_ms=1000), NOW) is Due.ASK


# what is open


def test_progress_is_the_first_open_one_and_ends_are_kept_as_long_as_they_matter() -> None:
    table = OpenTransactions()
    for offset in range(4):
        table.opened(half(offset))
    assert (table.halves_offset, table.ends_offset) == (0, 0)
    for offset in (1, 0):
        table.end_stored([offset])
        table.ended(half(offset))
    assert (table.halves_offset, table.ends_offset) == (2, 2)
    table.end_stored([3])
    table.ended(half(3))
    assert (table.halves_offset, table.ends_offset) == (2, 2), (
        "the end of 3 is needed as long as 2 is open"
    )
    table.end_stored([2])
    table.ended(half(2))
    assert (table.halves_offset, table.ends_offset) == (4, 4)


def test_one_that_was_written_again_counts_where_it_stands_now() -> None:
    table = OpenTransactions()
    table.opened(half(0))
    table.opened(half(1))
    table.opened(half(0, offset=2))
    assert [each.offset for each in table.all()] == [1, 2]
    assert table.halves_offset == 1
    assert table.get(0) == half(0, offset=2)
    table.ended(half(0, offset=2))
    assert [each.transaction for each in table.all()] == [1]


@given(
    st.lists(st.tuples(st.sampled_from(("open", "again", "end")), st.integers(0, 30)), max_size=60)
)
def test_who_starts_at_the_progress_finds_the_same_ones_open(steps: list[tuple[str, int]]) -> None:
    """As `HalfMessages.load` reads them."""
    table = OpenTransactions()
    halves: list[HalfRecord] = []
    ends: list[int] = []
    for step, number in steps:
        open_now = table.all()
        if step == "open" or not open_now:
            halves.append(half(len(halves)))
            table.opened(halves[-1])
            continue
        chosen = open_now[number % len(open_now)]
        if step == "again":
            halves.append(half(chosen.transaction, len(halves)))
            table.opened(halves[-1])
        else:
            ends.append(chosen.offset)
            table.end_stored([chosen.offset])
            table.ended(chosen)
    later = OpenTransactions(table.halves_offset, table.ends_offset)
    ended = set(ends[table.ends_offset :])
    for each in halves[table.halves_offset :]:
        (later.ended if each.offset in ended else later.opened)(each)
    assert later.all() == table.all()
