"""What an audit found, in words, JSON and HTML."""

from __future__ import annotations

import json
from typing import Any

from roquet.spark.pipelines.audit.report import BARS_MAX, AuditReport, QueueAudit


def queue(**other: Any) -> QueueAudit:
    values = dict.fromkeys(QueueAudit.__dataclass_fields__, 0)
    return QueueAudit(
        **values
        | {"topic": "a<b", "broker_name": "b", "first_difference": None, "first_is": None}
        | other
    )


def test_a_report_says_the_same_in_words_json_and_html() -> None:
    good = queue(left_rows=5, right_rows=5)
    bad = queue(
        queue_id=1,
        left_rows=5,
        right_rows=3,
        missing_right=2,
        first_difference=3,
        first_is="missing right",
    )
    report = AuditReport("master", "slave", (good, bad))

    assert not report.is_same
    assert report.summary == "1 of 2 queues differ: 10 messages in master, 8 in slave"
    tree = json.loads(json.dumps(report.to_json()))
    assert (
        tree["same"],
        tree["queues"][1]["missingRight"],
        tree["queues"][1]["firstDifference"],
    ) == (False, 2, 3)
    text = report.to_html()
    assert "a&lt;b@b:1" in text
    assert "a<b" not in text
    assert text.count('<tr class="bad">') == 1
    assert text.count("<svg") == 2
    assert len(report.titles()) == len(report.rows()[0])
    assert AuditReport("master", "slave", (good,)).summary.startswith("no difference: 5")


def test_every_kind_of_difference_counts() -> None:
    wrong = queue(
        missing_left=1,
        missing_right=2,
        doubled_left=4,
        doubled_right=8,
        different=16,
        corrupt_left=32,
        corrupt_right=64,
        first_difference=0,
    )

    assert wrong.found == 127
    assert not wrong.is_same
    assert queue().found == 0


def test_a_row_has_its_values_under_their_titles() -> None:
    wrong = queue(
        left_rows=1,
        missing_right=3,
        doubled_left=4,
        corrupt_right=5,
        first_difference=9,
        first_is="x",
    )
    report = AuditReport("L", "R", (wrong,))

    (row,) = report.rows()

    shown = dict(zip(report.titles(), row, strict=True))
    assert {title: value for title, value in shown.items() if value not in (0, None)} == {
        "queue": str(wrong),
        "in L": 1,
        "missing in R": 3,
        "doubled in L": 4,
        "corrupt in R": 5,
        "first": 9,
        "first is": "x",
    }


def test_charts_have_the_queues_with_most_and_no_more_than_a_page_can_show() -> None:
    many = tuple(
        queue(queue_id=number, left_rows=number, different=number, first_difference=0)
        for number in range(1, BARS_MAX + 3)
    )

    _, differences, messages = AuditReport("L", "R", many).to_html().split("<h2>")

    for chart in (differences, messages):
        assert f":{BARS_MAX + 2}<" in chart
        assert ":3<" in chart
        assert ":2<" not in chart


def test_nothing_compared_is_no_difference() -> None:
    empty = AuditReport("L", "R", ())

    assert empty.is_same
    assert empty.summary == "no difference: 0 messages in L, 0 in R"
    assert "Differences per queue" not in empty.to_html()
