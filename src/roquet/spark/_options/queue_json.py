"""PURE: JSON by topic, broker and queue, as rocketmq-spark writes it.

Example: {"orders":{"broker-a":{"0":23,"1":-1}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeVar

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue

_V = TypeVar("_V")


def tree_of(name: str, text: str, form: str) -> object:
    """Parse the JSON in an option.

    :param name: of the option, for the error.
    :param form: an example or description of valid values, for the error.
    :raises OptionError: `text` is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}: {text!r} is no valid value, give {form}") from error


def members(name: str, tree: object, form: str) -> list[tuple[str, object]]:
    """The members of a JSON object.

    :raises OptionError: `tree` is no JSON object.
    """
    if not isinstance(tree, dict):
        raise OptionError(f"{name}: {json.dumps(tree)} is no JSON object, give {form}")
    return list(tree.items())


def by_queue(name: str, tree: object, form: str) -> list[tuple[MessageQueue, object]]:
    """The value of each queue in a tree of topics, brokers and queue ids.

    :raises OptionError: `tree` has another structure.
    """
    return [
        (
            MessageQueue(topic, broker_name, queue_id_of(name, f"{topic}@{broker_name}", queue_id)),
            value,
        )
        for topic, brokers in members(name, tree, form)
        for broker_name, queues in members(name, brokers, form)
        for queue_id, value in members(name, queues, form)
    ]


def queue_id_of(name: str, at: str, given: object) -> int:
    """The queue id in a JSON value: an integer, or its digits, because member names are strings.

    :param at: the topic and broker of the queue, for the error.
    :raises OptionError: `given` is no integer of 0 or more.
    """
    queue_id = whole_number(given)
    if queue_id is None:
        raise OptionError(f"{name}: queue {given!r} of {at} is no queue id, such as 0")
    return queue_id


def whole_number(given: object) -> int | None:
    """A JSON value that is an integer of 0 or more, or its digits; None for any other value.

    Digits that Python does not convert, more than 4300, are no whole number either.
    """
    if isinstance(given, int):
        return given if given >= 0 and not isinstance(given, bool) else None
    digits = str(given)
    try:
        return int(digits) if digits.isdecimal() else None
    except ValueError:
        return None


def to_tree(
    values: Iterable[tuple[MessageQueue, _V]],
) -> Mapping[str, Mapping[str, Mapping[str, _V]]]:
    """A tree of topics, brokers and queue ids for JSON.

    Sorted by queue, so that equal values have equal JSON texts.
    """
    tree: dict[str, dict[str, dict[str, _V]]] = {}
    for queue, value in sorted(values, key=lambda pair: pair[0]):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = (
            value
        )
    return tree
