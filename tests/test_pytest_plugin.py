"""The fixtures serve tests of every kind, with whatever other plugins there are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plugin import LOADED

pytest_plugins = ["pytester"]

BLOCKING = """
import asyncio
import roquet

def test_a_message_is_received(roquet_cluster, roquet_topic, roquet_group):
    async def both():
        async with roquet.Producer(roquet_cluster.name_server, "shop") as producer:
            await producer.send(roquet_topic, b"one")
        async with roquet.Consumer(
            roquet_cluster.name_server, roquet_group, roquet_topic, "earliest"
        ) as consumer:
            return [message.body for message in await consumer.get_many(timeout_ms=10_000)]
    assert asyncio.run(both()) == [b"one"]
"""

ASYNCHRONOUS = """
import pytest
import roquet

async def test_a_message_is_received(roquet_cluster, roquet_topic, roquet_group):
    async with roquet.Producer(roquet_cluster.name_server, "shop") as producer:
        await producer.send(roquet_topic, b"one")
    async with roquet.Consumer(
        roquet_cluster.name_server, roquet_group, roquet_topic, "earliest"
    ) as consumer:
        (message,) = await consumer.get_many(timeout_ms=10_000)
    assert message.body == b"one"
"""


def passes(pytester: pytest.Pytester, passed: int, *options: str) -> pytest.RunResult:
    result = pytester.runpytest_subprocess(
        "-W", "error", "-p", "no:cacheprovider", *LOADED, *options
    )
    result.assert_outcomes(passed=passed)
    return result


def test_a_blocking_test_needs_no_other_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BLOCKING)

    passes(pytester, 1, "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:xdist")


@pytest.mark.parametrize("scope", ["function", "session"])
def test_a_coroutine_runs_in_a_loop_of_any_scope(pytester: pytest.Pytester, scope: str) -> None:
    pytest.importorskip("pytest_asyncio")
    pytester.makepyfile(
        ASYNCHRONOUS + f"\npytestmark = pytest.mark.asyncio(loop_scope={scope!r})\n"
    )

    own_warning = "ignore:The configuration option:pytest.PytestDeprecationWarning"
    passes(pytester, 1, "-o", "asyncio_mode=strict", "-W", own_warning)


def test_a_coroutine_runs_under_anyio(pytester: pytest.Pytester) -> None:
    pytest.importorskip("anyio")
    pytester.makepyfile(
        ASYNCHRONOUS.replace(
            "async def",
            "@pytest.mark.anyio\n@pytest.mark.parametrize('anyio_backend', ['asyncio'])\nasync def",
        )
    )

    passes(pytester, 1, "-p", "no:asyncio")


def test_workers_of_xdist_have_clusters_of_their_own(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(test_one=BLOCKING, test_two=BLOCKING)

    passes(pytester, 2, "-n", "2", "-p", "no:asyncio")


def test_tests_share_a_cluster_and_nothing_else(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from roquet.dev import Cluster

        seen = set()

        def look(cluster, *names):
            seen.update((cluster, *names))

        def test_a(roquet_cluster, roquet_topic, roquet_group):
            look(roquet_cluster, roquet_topic, roquet_group)
            assert cluster_has(roquet_cluster, roquet_topic)

        def test_b(roquet_cluster, roquet_topic, roquet_group):
            look(roquet_cluster, roquet_topic, roquet_group)
            gone = [name for name in seen if isinstance(name, str) and name.startswith("test_a")]
            assert not any(cluster_has(roquet_cluster, name) for name in gone)

        def test_c(roquet_fresh_cluster):
            assert roquet_fresh_cluster not in seen
            roquet_fresh_cluster.kill()
            assert len(seen) == 5

        def cluster_has(cluster, topic):
            return cluster.ask(lambda broker: topic in broker.parts.tables.topics.topics)
        """
    )

    passes(pytester, 3, "-p", "no:asyncio")


def test_the_cluster_is_as_the_settings_say(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        roquet_brokers = 2
        roquet_delay_levels = 1s 2s
        roquet_queues = 3
        roquet_settings =
            maxMessageSize=70000
            flushDiskType = SYNC_FLUSH
        """
    )
    pytester.makepyfile(
        """
        def test_it(roquet_cluster, roquet_topic):
            assert roquet_cluster.brokers == ("broker-a", "broker-b")
            config = roquet_cluster.ask(lambda broker: broker.config, "broker-b")
            assert config.delay_levels.ms == (1000, 2000)
            assert config.store.max_message_size == 70000
            assert config.store.is_sync_flush
            topics = roquet_cluster.ask(lambda broker: broker.parts.tables.topics.topics, "broker-b")
            assert topics[roquet_topic].write_queues == 3
        """
    )

    passes(pytester, 1, "-p", "no:asyncio")


def test_a_project_overrides_the_options(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def roquet_cluster_options():
            return {"brokers": ["payments"], "slaves": 1}
        """
    )
    pytester.makepyfile(
        "def test_it(roquet_cluster):\n"
        "    roquet_cluster.stop('payments:1')\n"
        "    assert roquet_cluster.brokers == ('payments',)\n"
    )

    passes(pytester, 1, "-p", "no:asyncio")


def test_a_broker_that_an_earlier_test_killed_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_a(roquet_cluster):
            roquet_cluster.kill()

        def test_b(roquet_topic):
            pass

        def test_c(roquet_group):
            pass

        def test_d(roquet_cluster):
            roquet_cluster.start()

        def test_e(roquet_topic, roquet_group):
            pass
        """
    )

    result = pytester.runpytest_subprocess(*LOADED, "-p", "no:asyncio")

    result.assert_outcomes(passed=3, errors=2)
    told = "an earlier test has killed or stopped dev of the shared cluster of roquet"
    assert result.stdout.str().count(told) >= 2


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("roquet_brokers = two", "roquet_brokers=two: allowed is a number"),
        ("roquet_settings = fast", "roquet_settings has 'fast': allowed is name=value"),
        ("roquet_settings = maxMessageSiz=1", "maxMessageSiz is no setting known here"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    pytester: pytest.Pytester, line: str, error: str
) -> None:
    pytester.makeini(f"[pytest]\n{line}\n")
    pytester.makepyfile("def test_it(roquet_cluster): pass")

    result = pytester.runpytest_subprocess(*LOADED, "-p", "no:asyncio")

    result.assert_outcomes(errors=1)
    assert error in result.stdout.str()


def test_pytest_starts_without_the_rest_of_roquet() -> None:
    code = (
        "import sys, roquet.pytest_plugin\n"
        "print([name for name in sys.modules if name.startswith(('roquet.', 'numpy', 'orjson'))])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert (
        output.stdout.strip() == "['roquet.common', 'roquet.common.lazy', 'roquet.pytest_plugin']"
    )
