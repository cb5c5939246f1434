"""What a function of the application is: a coroutine function, or one of a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from unittest.mock import AsyncMock, Mock

import pytest

from roquet.common.callables import check_handler, is_coroutine_function
from roquet.errors import ConfigError


async def wait(_: object) -> None:
    pass


class Waits:
    async def __call__(self) -> None:
        pass


def test_coroutine_functions_are_found() -> None:
    assert all(map(is_coroutine_function, (wait, partial(wait, 1), Waits(), Waits().__call__)))


def test_others_are_not() -> None:
    assert not any(map(is_coroutine_function, (print, lambda: wait(1), Waits, 7, None)))


class Books:
    def __call__(self, message: object) -> None:
        pass

    def book(self, message: object, *, twice: bool = False) -> None:
        pass

    def nothing(self) -> None:
        pass


def generate(message: object) -> Iterator[object]:
    yield message


async def generate_later(message: object) -> AsyncIterator[object]:
    yield message


@pytest.mark.parametrize(
    "handler",
    [
        wait,
        print,
        int,
        [].append,
        Books(),
        Books().book,
        partial(Books.book, Books()),
        lambda *everything: None,
        lambda message, at=None: None,
        Mock(),
        AsyncMock(),
    ],
)
def test_what_can_be_called_with_a_message_is_a_handler(handler: object) -> None:
    check_handler(handler)


@pytest.mark.parametrize(
    "handler",
    [
        None,
        Waits(),
        Books().nothing,
        Books.book,
        partial(wait, 1),
        lambda: None,
        lambda message, at: None,
        lambda *, message: None,
        generate,
        generate_later,
        partial(generate),
    ],
)
def test_anything_else_is_none(handler: object) -> None:
    with pytest.raises(ConfigError, match=r"^handler .*: "):
        check_handler(handler)
