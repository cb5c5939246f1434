"""Selects the messages of a table that a job processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


@dataclass(frozen=True)
class MessageFilter:
    """Conditions on messages; all that are given must hold.

    `since_ms`, `until_ms`: store times in ms since 1970, [since_ms, until_ms). `key`: a Java
    regular expression that must match one whole key of the message. `where`: a Spark SQL condition
    on the columns, such as `tags = 'paid' AND cast(body as string) LIKE '%"eur"%'`.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None
    where: str | None = None

    def of(self, messages: DataFrame) -> DataFrame:
        """The messages that pass.

        :raises pyspark.errors.ParseException: `where` is no valid condition.
        :raises pyspark.errors.AnalysisException: `where` names a column that does not exist.
        """
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
