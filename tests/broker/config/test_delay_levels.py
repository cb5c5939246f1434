"""Delay levels, as broker.conf and messages name them.

See docs/pitfalls.md#trap-69 and docs/protocol/producing.md#delay-levels.
"""

from __future__ import annotations

import pytest

from roquet.broker.config.delay_levels import DelayLevels, put_aside, waiting_queue
from roquet.broker.config.store import DELAY_LEVELS
from roquet.errors import Refused

SECOND_MS = 1000


def test_apaches_levels_are_from_a_second_to_two_hours() -> None:
    levels = DelayLevels.parse(DELAY_LEVELS).ms
    assert len(levels) == 18
    assert (levels[0], levels[2], levels[4], levels[17]) == (1000, 10_000, 60_000, 7_200_000)


def test_every_unit_may_be_used() -> None:
    assert DelayLevels.parse("2s 3m  1h 1d").ms == (2000, 180_000, 3_600_000, 86_400_000)


@pytest.mark.parametrize("text", ["", " ", "1s 5", "1s -5s", "1s 5S", "s", "1.5s", "1s,5s"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"there is no level in it|is not a number followed by s, m, h or d"
    ):
        DelayLevels.parse(text)


@pytest.mark.parametrize(
    ("asked", "level"), [("1", 1), ("3", 3), ("4", 3), ("2147483647", 3), ("0", 0), ("-1", 0)]
)
def test_a_level_beyond_the_last_is_the_last_and_0_is_none(asked: str, level: int) -> None:
    assert DelayLevels((1, 2, 3)).level_of({"DELAY": asked}) == level


def test_a_message_without_a_level_is_not_delayed() -> None:
    assert DelayLevels((1, 2, 3)).level_of({"TAGS": "a"}) == 0


@pytest.mark.parametrize("text", ["x", "1.5", " 1", "1s", "٣", "99999999999"])
def test_what_is_no_number_is_said_to_be_none(text: str) -> None:
    with pytest.raises(Refused, match="is a number from 0 to 3"):
        DelayLevels((1, 2, 3)).level_of({"DELAY": text})


def test_what_waits_says_where_it_belongs() -> None:
    aside = put_aside({"TAGS": "a", "DELAY": "99", "REAL_TOPIC": "before"}, 3, "T", 7)
    assert aside == {"TAGS": "a", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "7"}
    assert waiting_queue(3) == ("SCHEDULE_TOPIC_XXXX", 2)
