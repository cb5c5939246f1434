"""PURE: the options of a write to `format("rocketmq")`, from Spark's text to typed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from roquet.admin.access import NO_ACCESS, Access
from roquet.client._send.batches import BATCH_SIZE_MAX
from roquet.spark._options.access import ACCESS_NAMES, access
from roquet.spark._options.values import (
    OptionError,
    by_right_name,
    count,
    group,
    name_server,
    one_of,
    topic,
    truth,
)


class Delivery(Enum):
    """AT_LEAST_ONCE: what is sent again, after a failure of any kind, may be there twice.
    EFFECTIVELY_ONCE: rows carry ids, and a task that runs again looks for those that are stored already.
    """

    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"


@dataclass(frozen=True)
class WriteOptions:
    """What a write was asked for. Times in milliseconds, sizes in bytes.

    `topic` is None where a column names it, `compress_from_size` where no body is compressed. `timeout_ms` is for one
    request, `retries` for the tries after its first.
    """

    name_server: str
    topic: str | None = None
    group: str = "spark-roquet-sink"
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    timeout_ms: int = 10_000
    retries: int = 10
    compress_from_size: int | None = None
    batch_rows: int = 2000
    batch_size: int = 1024 * 1024
    fail_on_unsafe: bool = False
    access: Access = NO_ACCESS

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """:raises OptionError: one is missing, unknown or has a value that cannot be used."""
        values = by_right_name(options, _NAMES)
        fields: dict[str, object] = {"name_server": name_server(values), "access": access(values)}
        for name, (field, parse) in _SIMPLE.items():
            if name in values:
                fields[field] = parse(name, values[name])
        return cls(**cast(dict[str, Any], fields))


def _delivery(name: str, text: str) -> Delivery:
    return Delivery(one_of(name, text, [each.value for each in Delivery]))


def _tries(name: str, text: str) -> int:
    if not text.isdecimal():
        raise OptionError(f"{name}: {text!r} is no whole number, such as 0 or 10")
    return int(text)


def _batch_size(name: str, text: str) -> int:
    size = count(name, text)
    if size > BATCH_SIZE_MAX:
        raise OptionError(f"{name}: {size} bytes, brokers take {BATCH_SIZE_MAX} at most")
    return size


_SIMPLE: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "topic": ("topic", topic),
    "producerGroup": ("group", group),
    "delivery": ("delivery", _delivery),
    "sendTimeoutMs": ("timeout_ms", count),
    "retries": ("retries", _tries),
    "compressFromBytes": ("compress_from_size", count),
    "batchRows": ("batch_rows", count),
    "batchBytes": ("batch_size", _batch_size),
    "failOnUnsafe": ("fail_on_unsafe", truth),
}
"""Options that stand for themselves: the field each one fills and how its text is read."""

_NAMES: Final = ("nameServer", "checkpointLocation", *ACCESS_NAMES, *_SIMPLE)
"""Spark hands over its own option of a stream, where it keeps its checkpoint."""
