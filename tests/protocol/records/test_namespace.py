"""Full and plain names. The expected ones are those of NamespaceUtil of Apache's 4.9.7."""

from __future__ import annotations

import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace, is_system_name

TENANT = Namespace("tenant-a")


@pytest.mark.parametrize(
    ("plain", "full"),
    [
        ("T", "tenant-a%T"),
        ("%RETRY%G", "%RETRY%tenant-a%G"),
        ("%DLQ%G", "%DLQ%tenant-a%G"),
        ("other%T", "tenant-a%other%T"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_a_name_becomes_full_and_plain_again(plain: str, full: str) -> None:
    assert TENANT.full(plain) == full
    assert TENANT.plain(full) == plain
    assert TENANT.full(full) == full
    assert TENANT.plain(plain) == plain
    assert NO_NAMESPACE.full(full) == NO_NAMESPACE.plain(full) == full


def test_a_name_of_another_namespace_stays_as_it_is() -> None:
    assert TENANT.plain("tenant-b%T") == "tenant-b%T"
    assert TENANT.plain("%RETRY%tenant-b%G") == "%RETRY%tenant-b%G"


def test_a_full_name_is_one_of_its_namespace() -> None:
    assert TENANT.has("tenant-a%T")
    assert TENANT.has("%RETRY%tenant-a%G")
    assert not TENANT.has("T")
    assert not TENANT.has("tenant-b%T")
    assert NO_NAMESPACE.has("tenant-b%T")


def test_a_queue_has_the_name_of_its_topic() -> None:
    plain, full = MessageQueue("T", "b", 3), MessageQueue("tenant-a%T", "b", 3)
    assert TENANT.full_queue(plain) == full
    assert TENANT.plain_queue(full) == plain
    assert NO_NAMESPACE.full_queue(plain) is plain
    assert NO_NAMESPACE.plain_queue(full) is full


@pytest.mark.parametrize("name", ["a%b", "a b", "%", "ä"])
def test_a_namespace_that_no_topic_can_begin_with_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        Namespace(name)


def test_no_namespace_has_no_name() -> None:
    assert (NO_NAMESPACE.name, Namespace("").name, TENANT.name) == ("", "", "tenant-a")


def test_names_of_applications_are_no_system_names() -> None:
    assert not is_system_name("orders")
    assert is_system_name("BenchmarkTest")
