"""PURE: JSON by topic, broker and queue, as rocketmq-spark writes it: {"orders":{"broker-a":{"0":23,"1":-1}}}."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeVar

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.values import OptionError

_V = TypeVar("_V")


def tree_of(name: str, text: str, form: str) -> object:
    """The JSON in an option; `form` says in the error what would be right."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}: {text!r} is none of {form}") from error


def members(name: str, tree: object, form: str) -> list[tuple[str, object]]:
    """The members of what must be a JSON object."""
    if not isinstance(tree, dict):
        raise OptionError(
            f"{name}: {json.dumps(tree)} stands where a JSON object must be, as in {form}"
        )
    return list(tree.items())


def by_queue(name: str, tree: object, form: str) -> list[tuple[MessageQueue, object]]:
    """Whatever the tree says of each queue."""
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
    """A queue's number, which JSON has as a string where it is a member's name."""
    if (
        isinstance(given, bool)
        or not (isinstance(given, int) or str(given).isdecimal())
        or int(str(given)) < 0
    ):
        raise OptionError(f"{name}: queue {given!r} of {at} is no number")
    return int(str(given))


def to_tree(
    values: Iterable[tuple[MessageQueue, _V]],
) -> Mapping[str, Mapping[str, Mapping[str, _V]]]:
    """The same the other way: always in the order of the queues, so that equal values make equal text."""
    tree: dict[str, dict[str, dict[str, _V]]] = {}
    for queue, value in sorted(values, key=lambda pair: pair[0]):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = (
            value
        )
    return tree
