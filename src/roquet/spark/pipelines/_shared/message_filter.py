"""Which messages of a table a job is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


@dataclass(frozen=True)
class MessageFilter:
    """All that is given has to be so. Times in ms since the epoch: stored at `since_ms` or later, before `until_ms`.

    `key`: a regular expression (Java's) that one of a message's keys matches as a whole; `where`: a condition of Spark
    SQL on the columns, such as `tags = 'paid' AND cast(body as string) LIKE '%"eur"%'`.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None
    where: str | None = None

    def of(self, messages: DataFrame) -> DataFrame:
        """:raises pyspark.errors.ParseException: `where` is no condition; AnalysisException: it names no column."""
        stored = f.unix_millis("storeTimestamp")
        if self.since_ms is not None:
            messages = messages.where(stored >= self.since_ms)
        if self.until_ms is not None:
            messages = messages.where(stored < self.until_ms)
        if self.key is not None:
            pattern = f"^(?:{self.key})$"
            messages = messages.where(
                f.exists(f.split("keys", " "), lambda each: each.rlike(pattern))
            )
        return messages if self.where is None else messages.where(self.where)


ALL: Final = MessageFilter()
"""Every message."""
