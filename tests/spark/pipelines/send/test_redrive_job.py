"""Where messages that are sent again may go. (That they arrive is tested with archives.)"""

from __future__ import annotations

import pytest

from roquet.errors import OptionError
from roquet.spark.pipelines.send.redrive_job import Redrive, Redriven, dead_letters_of


def test_only_dead_letters_and_retries_know_where_to() -> None:
    with pytest.raises(OptionError, match="orders has neither"):
        Redrive("127.0.0.1:1", "orders").check()
    with pytest.raises(OptionError, match="are in orders already"):
        Redrive("127.0.0.1:1", "orders", to="orders").check()
    Redrive("127.0.0.1:1", "%DLQ%g").check()
    Redrive("127.0.0.1:1", "%RETRY%g").check()
    Redrive("127.0.0.1:1", "orders", to="again").check()


def test_dead_letters_may_not_go_to_where_they_are() -> None:
    topic = dead_letters_of("g")

    assert topic == "%DLQ%g"
    with pytest.raises(OptionError, match="to: the messages are in %DLQ%g already, give another"):
        Redrive("127.0.0.1:1", topic, to=topic).check()


def test_what_was_sent_is_counted_over_all_topics() -> None:
    assert Redriven({"a": 2, "b": 3}, ()).count == 5
    assert Redriven({}, ()).count == 0
