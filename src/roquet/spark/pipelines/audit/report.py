"""PURE: the report of an audit, as text, JSON and HTML."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from roquet.common.java import camel_case
from roquet.spark.pipelines._shared.page import heading, page, paragraph, table
from roquet.spark.pipelines.svg import bars

BARS_MAX: Final = 40


@dataclass(frozen=True)
class QueueAudit:
    """The comparison of one queue. All counts are of queue offsets.

    `*_end`: the last offset plus one; None without messages. `missing_*`: offsets that only the
    other side has. `doubled_*`: offsets that exist more than once. `different`: offsets that both
    sides have, with different ids, CRCs or physical offsets. `corrupt_*`: offsets whose body does
    not have the stored CRC. `first_difference`: the lowest offset of any difference, `first_is` its
    kind; None without differences.
    """

    topic: str
    broker_name: str
    queue_id: int
    left_rows: int
    right_rows: int
    left_end: int | None
    right_end: int | None
    missing_left: int
    missing_right: int
    doubled_left: int
    doubled_right: int
    different: int
    corrupt_left: int
    corrupt_right: int
    first_difference: int | None
    first_is: str | None

    @property
    def is_same(self) -> bool:
        return self.first_difference is None

    @property
    def found(self) -> int:
        """The number of differences. An offset with several kinds of difference counts for each."""
        missing = self.missing_left + self.missing_right
        doubled = self.doubled_left + self.doubled_right
        return missing + doubled + self.different + self.corrupt_left + self.corrupt_right

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(frozen=True)
class AuditReport:
    """The comparison of all queues that either side has. `left` and `right` name the sides."""

    left: str
    right: str
    queues: tuple[QueueAudit, ...]

    @property
    def is_same(self) -> bool:
        return all(queue.is_same for queue in self.queues)

    @property
    def summary(self) -> str:
        left, right = (
            sum(getattr(each, side) for each in self.queues) for side in ("left_rows", "right_rows")
        )
        wrong = sum(not queue.is_same for queue in self.queues)
        verdict = (
            "no difference" if self.is_same else f"{wrong:,} of {len(self.queues):,} queues differ"
        )
        return f"{verdict}: {left:,} messages in {self.left}, {right:,} in {self.right}"

    def to_json(self) -> dict[str, Any]:
        """The report for programs, with names in camel case as in Spark's source."""
        queues = [
            {camel_case(name): value for name, value in asdict(queue).items()}
            for queue in self.queues
        ]
        return {"left": self.left, "right": self.right, "same": self.is_same, "queues": queues}

    def rows(self) -> list[tuple[object, ...]]:
        """A row per queue, for a table with `titles`."""
        return [
            (
                str(each),
                each.left_rows,
                each.right_rows,
                each.missing_left,
                each.missing_right,
                each.doubled_left,
                each.doubled_right,
                each.different,
                each.corrupt_left,
                each.corrupt_right,
                each.first_difference,
                each.first_is,
            )
            for each in self.queues
        ]

    def titles(self) -> tuple[str, ...]:
        sides = [
            f"{what} {side}"
            for what in ("in", "missing in", "doubled in")
            for side in (self.left, self.right)
        ]
        return (
            "queue",
            *sides,
            "different",
            f"corrupt in {self.left}",
            f"corrupt in {self.right}",
            "first",
            "first is",
        )

    def to_html(self) -> str:
        """An HTML page with a table and charts."""
        marked = [not queue.is_same for queue in self.queues]
        parts = [paragraph(self.summary), table(self.titles(), self.rows(), marked)]
        worst = sorted(
            (queue for queue in self.queues if queue.found), key=lambda queue: -queue.found
        )
        if worst:
            found = {str(queue): queue.found for queue in worst[:BARS_MAX]}
            parts += [heading("Differences per queue"), bars(found, unit="")]
        largest = sorted(self.queues, key=lambda queue: -queue.left_rows)
        rows = {str(queue): queue.left_rows for queue in largest[:BARS_MAX]}
        parts += [heading(f"Messages per queue in {self.left}"), bars(rows, unit="")]
        return page(f"Audit: {self.left} against {self.right}", parts)
