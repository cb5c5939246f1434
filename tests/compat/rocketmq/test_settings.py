"""The settings that producers and consumers share."""

from __future__ import annotations

import pytest

from roquet.compat.rocketmq.client import Message, Producer, PushConsumer
from roquet.compat.rocketmq.exceptions import (
    ProducerSendSyncFailed,
    ProducerStartFailed,
    PushConsumerStartFailed,
    RocketMQException,
)
from roquet.dev import Cluster


def test_without_name_server_neither_starts() -> None:
    with pytest.raises(ProducerStartFailed, match="name_server is ''"):
        Producer("shop").start()
    consumer = PushConsumer("billing")
    consumer.subscribe("orders", lambda _: None)
    with pytest.raises(PushConsumerStartFailed, match="name_server is ''"):
        consumer.start()


def test_a_domain_is_refused_and_the_text_says_what_to_do() -> None:
    with pytest.raises(RocketMQException, match="set_name_server_address"):
        Producer("shop").set_name_server_domain("http://example.com")


def test_the_names_of_version_1_are_there(cluster: Cluster) -> None:
    producer = Producer("shop")
    producer.set_namesrv_addr(cluster.name_server.encode())
    with producer:
        assert producer.set_namesrv_domain == producer.set_name_server_domain


def test_the_group_may_be_set_later(cluster: Cluster) -> None:
    producer = Producer("no such group!")
    producer.set_name_server_address(cluster.name_server)
    with pytest.raises(ProducerStartFailed, match="group name"):
        producer.start()
    producer.set_group("shop")
    with producer:
        pass


def test_keys_that_cannot_sign_are_refused_at_the_start() -> None:
    producer = Producer("shop")
    producer.set_name_server_address("127.0.0.1:9876")
    producer.set_session_credentials("account", "", "ALIYUN")
    with pytest.raises(ProducerStartFailed, match="secret_key is empty"):
        producer.start()
    with pytest.raises(ProducerSendSyncFailed, match="call start"):
        producer.send_sync(Message("orders"))
