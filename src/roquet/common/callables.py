"""What kind of function the application has given."""

from __future__ import annotations

import inspect


def is_coroutine_function(function: object) -> bool:
    """Whether a call returns a coroutine, also of an object with such a `__call__`."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - of an object's class
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
