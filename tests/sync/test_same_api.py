"""The blocking client has the methods and arguments of the asyncio client."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, get_type_hints

import pytest

import roquet
from roquet import sync
from roquet.admin.cluster import AdminClient
from roquet.client._net.session_user import SessionUser
from roquet.sync.blocking_user import BlockingUser

CLASSES: Final = [
    (roquet.Client, sync.Client),
    (roquet.Producer, sync.Producer),
    (roquet.TransactionProducer, sync.TransactionProducer),
    (roquet.Consumer, sync.Consumer),
    (roquet.PullConsumer, sync.PullConsumer),
    (AdminClient, sync.AdminClient),
]
LISTENERS: Final = (roquet.RebalanceListener, sync.RebalanceListener)
INSTEAD: Final[Mapping[str, str]] = {
    "SessionUser": "BlockingUser[Any]",
    "AsyncIterator[": "Iterator[",
}
"""What stands in an annotation of the asyncio client -> what stands there in the blocking one."""
PLAIN: Final = frozenset({"Handler", "Check", "Local"})
"""Kinds of functions of the application. The blocking client takes plain ones, of the same names."""


def public(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(cls) if not name.startswith("_")}


def annotation(text: object) -> str:
    found = str(text)
    for name, other in INSTEAD.items():
        found = found.replace(name, other)
    return found


def parameters(function: Any) -> dict[str, tuple[object, str]]:
    """Name -> default and annotation of each parameter, those of a TypedDict included.

    Options that one class names and the other takes as a TypedDict are the same to a caller, but
    for the default, which only the one that names them has.
    """
    found: dict[str, tuple[object, str]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = get_type_hints(function)[parameter.name].__args__
            found |= dict.fromkeys(options.__annotations__, (parameter.empty, ""))
        else:
            kind = f"{parameter.kind.name} {annotation(parameter.annotation)}"
            found[parameter.name] = (parameter.default, kind)
    return found


def positional(function: Any) -> list[str]:
    """The parameters that may be given without a name."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        each.name for each in inspect.signature(function).parameters.values() if each.kind in kinds
    ]


@pytest.mark.parametrize(("ours", "blocking"), [*CLASSES, LISTENERS])
def test_every_public_name_is_in_both(ours: type, blocking: type) -> None:
    attributes = {"config"} if issubclass(ours, SessionUser) else set()

    assert public(blocking).keys() == public(ours).keys() | attributes


METHODS: Final = [
    pytest.param(member, public(blocking).get(name), id=f"{ours.__name__}.{name}")
    for ours, blocking in [*CLASSES, LISTENERS]
    for name, member in public(ours).items()
    if callable(member)
]


@pytest.mark.parametrize(("method", "blocking"), METHODS)
def test_every_method_has_the_same_parameters(method: Any, blocking: Any) -> None:
    assert parameters(blocking) == parameters(method)
    assert list(parameters(blocking)) == list(parameters(method))


@pytest.mark.parametrize(("method", "blocking"), METHODS)
def test_every_method_returns_the_same_and_is_no_coroutine_function(
    method: Any, blocking: Any
) -> None:
    returned = annotation(inspect.signature(method).return_annotation)

    assert inspect.signature(blocking).return_annotation == returned
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize(("ours", "blocking"), CLASSES)
def test_every_constructor_takes_the_same_arguments(ours: type, blocking: type) -> None:
    expected, found = parameters(ours.__init__), parameters(blocking.__init__)  # type: ignore[misc]

    assert found.keys() == expected.keys()
    for name, (default, kind) in found.items():
        if kind:  # it is named, and not in a TypedDict
            assert (default, kind) == expected[name]
    assert positional(blocking.__init__) == positional(ours.__init__)  # type: ignore[misc]


def test_connect_takes_the_same_arguments() -> None:
    assert parameters(sync.connect) == parameters(roquet.connect)


def test_a_method_that_lacks_an_argument_would_be_seen() -> None:
    def method(self: object, queue: str, *, timeout_ms: int = 1) -> None: ...

    def lacking(self: object, queue: str) -> None: ...

    def other(self: object, queue: str, *, timeout_ms: int = 2) -> None: ...

    assert parameters(method) not in (parameters(lacking), parameters(other))


def test_the_bases_have_the_same_names_too() -> None:
    assert public(BlockingUser).keys() == public(SessionUser).keys() | {"config"}
