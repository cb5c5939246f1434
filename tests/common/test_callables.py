"""Coroutine functions are told from others, also as methods, partials and objects."""

from __future__ import annotations

from functools import partial

from roquet.common.callables import is_coroutine_function


async def wait(_: object) -> None:
    pass


class Waits:
    async def __call__(self) -> None:
        pass


def test_coroutine_functions_are_found() -> None:
    assert all(map(is_coroutine_function, (wait, partial(wait, 1), Waits(), Waits().__call__)))


def test_others_are_not() -> None:
    assert not any(map(is_coroutine_function, (print, lambda: wait(1), Waits, 7, None)))
