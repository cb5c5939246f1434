"""What kind of function the application has given."""

from __future__ import annotations

import inspect

from roquet.errors import ConfigError


def is_coroutine_function(function: object) -> bool:
    """Whether a call returns a coroutine, also of an object with such a `__call__`."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - of an object's class
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def check_handler(handler: object) -> None:
    """Check that a function of the application can be called with a message, and nothing else.

    Otherwise each message would fail, until all are in the dead letter topic.

    :raises ConfigError: it cannot; or its calls do nothing, as it is a generator function.
    """
    if not callable(handler):
        raise ConfigError(f"handler is {handler!r}: give a function of a message")
    name = getattr(handler, "__qualname__", repr(handler))
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigError(
            f"handler {name} has a yield, so a call of it does nothing: give a function without"
        )
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):
        return  # of some functions that are written in C
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"handler {name}{signature} cannot be called with a message alone: {error}"
        ) from None
