"""PURE: parses the options of writes to `format("rocketmq")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from roquet.admin.access import Access
from roquet.client._send.encoded_message import BATCH_SIZE_MAX
from roquet.errors import OptionError
from roquet.spark._options.queue_json import whole_number
from roquet.spark._options.values import (
    ACCESS_NAMES,
    Parsers,
    access,
    boolean,
    by_documented_name,
    count,
    group,
    name_server,
    one_of,
    parsed,
    topic,
)


class DeliveryGuarantee(Enum):
    """Whether a task that runs again looks for the rows that its earlier attempts stored.

    AT_LEAST_ONCE: it does not, so rows that are sent again may be stored twice.
    EFFECTIVELY_ONCE: it does; rows have ids by which it finds them.
    """

    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"


@dataclass(frozen=True)
class WriteOptions:
    """The options of one write. Times are in milliseconds, sizes in bytes.

    `topic` is None if a column names the topics. `compress_from_size` is None if no body is
    compressed. `timeout_ms` bounds one request; `retries` counts the attempts after the first one.
    """

    name_server: str
    topic: str | None = None
    group: str = "spark-roquet-sink"
    delivery: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    timeout_ms: int = 10_000
    retries: int = 10
    compress_from_size: int | None = None
    batch_rows: int = 2000
    batch_size: int = 1024 * 1024
    fail_on_unsafe: bool = False
    access: Access = field(default_factory=Access)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse the options that Spark passes.

        :raises OptionError: an option is missing, unknown or invalid.
        """
        values = by_documented_name(options, _NAMES)
        return cls(name_server(values), access=access(values), **parsed(values, _SIMPLE))


def _delivery(name: str, text: str) -> DeliveryGuarantee:
    return DeliveryGuarantee(one_of(name, text, [each.value for each in DeliveryGuarantee]))


def _tries(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise OptionError(f"{name}: {text!r} is no whole number, such as 0 or 10")
    return number


def _batch_size(name: str, text: str) -> int:
    size = count(name, text)
    if size > BATCH_SIZE_MAX:
        raise OptionError(
            f"{name}: {size} is above {BATCH_SIZE_MAX} bytes, the brokers' limit for a request"
        )
    return size


_SIMPLE: Final[Parsers] = {
    "topic": ("topic", topic),
    "producerGroup": ("group", group),
    "delivery": ("delivery", _delivery),
    "sendTimeoutMs": ("timeout_ms", count),
    "retries": ("retries", _tries),
    "compressFromBytes": ("compress_from_size", count),
    "batchRows": ("batch_rows", count),
    "batchBytes": ("batch_size", _batch_size),
    "failOnUnsafe": ("fail_on_unsafe", boolean),
}
"""Options that do not depend on other options."""

_NAMES: Final = ("nameServer", "checkpointLocation", *ACCESS_NAMES, *_SIMPLE)
"""Spark also passes checkpointLocation, its own option of streams."""
