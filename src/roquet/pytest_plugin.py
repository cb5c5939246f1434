"""pytest's fixtures for programs that use RocketMQ: a cluster, a topic, a group.

The cluster runs in threads of its own. So tests that block and tests of any event loop use the same
one, and pytest-asyncio needs no setting for it. With pytest-xdist each worker has its own.

Nothing else of roquet is imported before a test asks for a fixture.

May import: dev.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from roquet.dev import Cluster

_NAME_SIZE_MAX: Final = 60
"""Characters of a test's name in a topic or group."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("roquet_brokers", "How many brokers a cluster of roquet's fixtures has.")
    parser.addini("roquet_slaves", "How many slaves each of these brokers has.")
    parser.addini("roquet_delay_levels", "Their delay levels, such as: 1s 1s 1s")
    parser.addini("roquet_settings", "Their settings, a line for each: name=value", type="linelist")
    parser.addini("roquet_queues", "How many queues roquet_topic has at each broker.", default="4")


@pytest.fixture(scope="session")
def roquet_cluster_options(pytestconfig: pytest.Config) -> dict[str, Any]:
    """The arguments of `roquet.dev.Cluster`, from pytest's settings; override it for others."""
    options: dict[str, Any] = {}
    for name in ("brokers", "slaves"):
        if text := pytestconfig.getini(f"roquet_{name}"):
            options[name] = _number(f"roquet_{name}", text)
    if text := pytestconfig.getini("roquet_delay_levels"):
        options["delay_levels"] = text
    if lines := pytestconfig.getini("roquet_settings"):
        options["settings"] = dict(map(_pair, lines))
    return options


@pytest.fixture(scope="session")
def roquet_cluster(roquet_cluster_options: dict[str, Any]) -> Iterator[Cluster]:
    """A cluster that all tests share. Tests that let it fail take `roquet_fresh_cluster`."""
    yield from _running(roquet_cluster_options)


@pytest.fixture
def roquet_fresh_cluster(roquet_cluster_options: dict[str, Any]) -> Iterator[Cluster]:
    """A cluster for this test alone."""
    yield from _running(roquet_cluster_options)


@pytest.fixture
def roquet_topic(roquet_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new topic of the shared cluster; it is deleted after the test."""
    _check_whole(roquet_cluster)
    topic = _name(request)
    queues = _number("roquet_queues", request.config.getini("roquet_queues"))
    roquet_cluster.create_topic(topic, queues)
    yield topic
    roquet_cluster.delete_topic(topic)


@pytest.fixture
def roquet_group(roquet_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new group; its offsets and retries are deleted after the test."""
    _check_whole(roquet_cluster)
    group = _name(request)
    yield group
    roquet_cluster.delete_group(group)


def _running(options: dict[str, Any]) -> Iterator[Cluster]:
    from roquet.dev import Cluster

    with Cluster(**options) as cluster:
        yield cluster


def _check_whole(cluster: Cluster) -> None:
    """Fail a test that would meet what an earlier one has left, and say so."""
    if away := cluster.away():
        names = ", ".join(away)
        pytest.fail(
            f"an earlier test has killed or stopped {names} of the shared cluster of roquet, and "
            "did not start it again: tests that do so take roquet_fresh_cluster, or call start()",
            pytrace=False,
        )


def _name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has, and that tells whose it is."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:_NAME_SIZE_MAX]
    return f"{readable}-{uuid.uuid4().hex[:8]}"


def _number(setting: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text.strip()):
        raise pytest.UsageError(f"{setting}={text}: allowed is a number")
    return int(text)


def _pair(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise pytest.UsageError(f"roquet_settings has {line!r}: allowed is name=value")
    return name.strip(), value.strip()
