"""What all clients share is given and checked once."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from roquet import ClientConfig, ConfigError, Credentials, Tls
from roquet.admin.cluster import AdminClient
from roquet.client._net.session_user import SessionUser
from roquet.client.config import ClientOptions
from roquet.client.consumer import Consumer, ConsumerOptions
from roquet.client.producer import Producer, ProducerOptions
from roquet.client.pull_consumer import PullConsumer, PullOptions
from roquet.client.received import ReceivedMessage
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.cluster import Client

KEYS = Credentials("account", "secret")


async def check(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


CLIENTS: dict[str, Callable[..., SessionUser]] = {
    "Producer": lambda server, **options: Producer(server, "G", **options),
    "TransactionProducer": lambda server, **options: TransactionProducer(
        server, "G", check, **options
    ),
    "Consumer": lambda server, **options: Consumer(server, "G", "T", **options),
    "PullConsumer": PullConsumer,
    "AdminClient": AdminClient,
    "Client": Client,
}
every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


@every_client
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"credentials": "account"}, "credentials is 'account': give a Credentials, or None"),
        ({"tls": True}, "tls is True: give a Tls, or None"),
        ({"client_id": 7}, "client_id is 7: give a str, or None"),
        ({"client_id": ""}, "client_id is empty"),
        ({"runtime": 7}, "runtime is 7: give a Runtime, or None"),
        ({"poll_name_server_ms": 9}, "poll_name_server_ms is 9: allowed are 10 to 2147483647"),
        ({"poll_name_server_ms": None}, "poll_name_server_ms is None: allowed are 10 to"),
        ({"unit_mode": "yes"}, "unit_mode is 'yes': give True or False"),
        ({"unit_name": ""}, "unit_name is empty: give a name, or None"),
        ({"unit_name": 7}, "unit_name is 7: give a str, or None"),
        ({"heartbeat_ms": 0.5}, "heartbeat_ms is 0.5: allowed are 10 to 100000"),
        ({"heartbeat_ms": 120_000}, "heartbeat_ms is 120000: allowed are 10 to 100000"),
    ],
)
def test_a_wrong_option_is_named_by_every_client(
    client: Callable[..., SessionUser], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        client("ns:9876", **options)


@every_client
@pytest.mark.parametrize("server", ["", " ; ", "ns", "ns:", "ns:0", "a:1;b", ["a:1", "b"], None])
def test_a_wrong_name_server_is_named_by_every_client(
    client: Callable[..., SessionUser], server: Any
) -> None:
    with pytest.raises(ConfigError, match=r"^name_server"):
        client(server)


@every_client
def test_an_unknown_option_is_refused_by_every_client(client: Callable[..., SessionUser]) -> None:
    kind = type(client("ns:9876")).__name__
    with pytest.raises(
        TypeError,
        match=rf"^{kind}\(\) got an unexpected keyword argument 'clientid'\. Did you mean "
        r"'client_id'\?$",
    ):
        client("ns:9876", clientid="me")


def test_an_unknown_option_of_a_client_that_shares_a_session_is_its_own() -> None:
    with pytest.raises(TypeError, match=r"^Consumer\(\) got .* 'strat'\. Did you mean 'start'\?"):
        Client("ns:9876").consumer("G", "T", strat="earliest")  # type: ignore[call-arg]


@every_client
def test_every_client_takes_a_config_and_replaces_what_is_given_beside_it(
    client: Callable[..., SessionUser],
) -> None:
    config = ClientConfig("ns:9876", credentials=KEYS, client_id="10.0.0.1@shared")

    assert client(config).config == config
    assert client(config, tls=Tls(verify="ca")).config == dataclasses.replace(
        config, tls=Tls(verify="ca")
    )
    assert client("ns:9876", credentials=KEYS, client_id="10.0.0.1@shared").config == config


def test_name_servers_are_separated_by_semicolons_or_commas() -> None:
    assert ClientConfig("a:1; b:2,[::1]:3;").addresses == ["a:1", "b:2", "[::1]:3"]


def test_the_url_of_an_address_server_stands_for_name_servers() -> None:
    config = ClientConfig(" http://ns.example:8080/rocketmq/nsaddr ")

    assert config.address_server == "http://ns.example:8080/rocketmq/nsaddr"
    assert config.addresses == []
    assert ClientConfig("https://[::1]/nsaddr").address_server == "https://[::1]/nsaddr"
    assert ClientConfig("a:1").address_server is None


@pytest.mark.parametrize(
    "url",
    [
        "http://ns:9876",
        "http://ns:9876/",
        "ftp://ns/nsaddr",
        "file:///etc/passwd",
        "http:///nsaddr",
        "http://ns:0/nsaddr",
        "http://ns:99999/nsaddr",
        "http://ns/a b",
        "http://ns/nsaddr?a=1",
        "http://ns/nsaddr#a",
        "http://ns/nsaddr;ns:9876",
        "ns:9876;http://ns/nsaddr",
        "http://ns/nsaddr,http://other/nsaddr",
        "http://ns/ns\naddr",
        "http://[::1/nsaddr",
    ],
)
def test_what_is_no_url_of_an_address_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"name_server is .*: give host:port .* or the URL of"):
        ClientConfig(url)


@pytest.mark.parametrize(
    "name_server",
    [
        "http://user:hidden@ns:8080/nsaddr",
        "http://user:hidden@ns",
        "http://user:hid/den@ns:8080/nsaddr",
        "http://hidden@[::1/nsaddr",
        ["http://user:hidden@ns/nsaddr", "ns:9876"],
    ],
)
def test_the_url_of_an_address_server_has_no_password_and_none_is_told(
    name_server: str | list[str],
) -> None:
    with pytest.raises(ConfigError, match="without user name and password") as caught:
        ClientConfig(name_server)
    assert "hid" not in str(caught.value)


def test_a_config_shows_no_secret_and_can_be_sent_to_tasks_of_spark() -> None:
    config = ClientConfig("ns:9876", KEYS, Tls(key_password="hidden", cert_file="c"))

    assert "secret" not in repr(config)
    assert "hidden" not in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config


def test_the_options_of_clients_are_the_parameters_that_they_are_passed_on_to() -> None:
    """Type checkers read the names and types from the options, programs get the parameters'."""
    after_the_first = list(inspect.signature(ClientConfig).parameters)[1:]
    assert list(ClientOptions.__annotations__) == after_the_first


@pytest.mark.parametrize(
    ("options", "client"),
    [(ProducerOptions, Producer), (ConsumerOptions, Consumer), (PullOptions, PullConsumer)],
)
def test_the_options_of_a_client_are_its_keyword_arguments(options: type, client: type) -> None:
    keywords = [
        name
        for name, parameter in inspect.signature(client).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    own = options.__annotations__.keys() - ClientOptions.__annotations__.keys()
    assert own == {*keywords}


@every_client
@pytest.mark.parametrize("several", [["a:1", "b:2"], ("a:1", "b:2"), "a:1;b:2", ["a:1;b:2"]])
def test_several_name_servers_may_be_a_list(
    client: Callable[..., SessionUser], several: Any
) -> None:
    assert client(several).config == ClientConfig("a:1;b:2")
    assert client(several).config.addresses == ["a:1", "b:2"]


@pytest.mark.parametrize("wrong", [[], ["a:1", 5], {"a:1"}, None, 5, b"a:1"])
def test_what_names_no_name_server_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"name_server is .*: give host:port, several separated"):
        ClientConfig(wrong)
