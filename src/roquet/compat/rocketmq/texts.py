"""Arguments that are texts. Programs give them as str or as UTF-8 bytes."""

from __future__ import annotations

from typing import TypeAlias

from roquet.compat.rocketmq.exceptions import RocketMQException

Text: TypeAlias = str | bytes


def text_of(name: str, value: Text) -> str:
    """The value of an argument as str.

    :raises RocketMQException: it is no text; the message names the argument.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise RocketMQException(
            f"{name} is {value!r} of type {type(value).__name__}: give a str, or bytes in UTF-8"
        )
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RocketMQException(f"{name} is {value!r}: these bytes are no UTF-8") from error
