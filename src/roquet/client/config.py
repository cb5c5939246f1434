"""How clients reach a cluster: the settings that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from roquet.client.hook import Hook, check_hooks
from roquet.common.arguments import check_bool, check_number
from roquet.common.runtime import Runtime
from roquet.errors import ConfigError
from roquet.protocol.records.namespace import Namespace
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.channels import split_address
from roquet.transport.tls import Tls

__all__ = ["ClientConfig", "ClientOptions"]


POLL_NAME_SERVER_MS: Final = 30_000
HEARTBEAT_MS: Final = 30_000
PERIOD_MS_MIN: Final = 10
"""The shortest period of what a client does again and again: a shorter one only costs CPU time."""
HEARTBEAT_MS_MAX: Final = 100_000
"""Brokers close connections that are silent for 120 s."""
NameServers: TypeAlias = str | Sequence[str]


class ClientOptions(TypedDict, total=False):
    """The parameters of `ClientConfig` after the first, as keyword arguments of every client."""

    credentials: Credentials | None
    tls: Tls | None
    client_id: str | None
    runtime: Runtime | None
    hooks: Sequence[Hook]
    namespace: str | None
    poll_name_server_ms: int
    heartbeat_ms: int
    unit_mode: bool
    unit_name: str | None


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How a client reaches its cluster. Several clients may share one config.

    All clients take a config in place of a name server:

        config = ClientConfig("127.0.0.1:9876", credentials=Credentials("account", "secret"))
        async with Producer(config, "shop") as producer, PullConsumer(config) as reader:
            ...

    :param name_server: `host:port`; several are separated by semicolons or commas, or a list. Or
        the URL of an address server, `http://host:port/path`, which names them.
    :param credentials: the keys that sign every request, for brokers with `aclEnable=true`.
    :param tls: encrypt the connections to name servers and brokers, and verify the servers.
    :param client_id: the id of the client, `address@anything`. No two clients may have the same,
        so a config with an id is for one client. None: each client gets a random one.
    :param runtime: clock and random numbers; simulations replace them.
    :param hooks: objects that are told of each send, delivery and request (`Hook`).
    :param namespace: sets the topics and groups of one tenant apart from those of others. Brokers
        know them as `namespace%name`; the application uses and sees the names without it.
    :param poll_name_server_ms: the period in ms in which routes are refreshed, and in which an
        address server is asked.
    :param heartbeat_ms: the period in ms of heartbeats, at most 100,000. Brokers forget a client
        from which they hear nothing for 120 s.
    :param unit_mode: the topics and retry topics that brokers create for this client are marked as
        those of a unit. Apache's tools list them (`GET_UNIT_TOPIC_LIST`).
    :param unit_name: is added to a random client id, as `@name`, and to the URL of an address
        server, as `-name?nofix=1`.
    :raises ConfigError: an argument cannot be used; the message names it.
    """

    name_server: NameServers
    credentials: Credentials | None = None
    tls: Tls | None = None
    client_id: str | None = None
    # None and not a new Runtime: tasks of Spark, which get copies of a config, would all draw the
    # same random numbers for their ids.
    runtime: Runtime | None = None
    hooks: Sequence[Hook] = ()
    namespace: str | None = None
    poll_name_server_ms: int = POLL_NAME_SERVER_MS
    heartbeat_ms: int = HEARTBEAT_MS
    unit_mode: bool = False
    unit_name: str | None = None

    def __post_init__(self) -> None:
        given = self.name_server
        if isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
            object.__setattr__(self, "name_server", ";".join(given))
        if not isinstance(self.name_server, str) or not (self.address_server or self.addresses):
            raise ConfigError(
                f"name_server is {given!r}: "
                "give host:port, several separated by semicolons or in a list"
            )
        if self.address_server is not None:
            _check_url(self.address_server)
        for address in self.addresses:
            try:
                split_address(address)
            except ValueError as error:
                raise ConfigError(f"name_server: {error}") from error
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}: give a {kind.__name__}, or None")
        object.__setattr__(self, "hooks", check_hooks(self.hooks))
        check_number("poll_name_server_ms", self.poll_name_server_ms, PERIOD_MS_MIN)
        check_number("heartbeat_ms", self.heartbeat_ms, PERIOD_MS_MIN, HEARTBEAT_MS_MAX)
        check_bool("unit_mode", self.unit_mode)
        if self.unit_name == "":
            raise ConfigError("unit_name is empty: give a name, or None")
        if self.client_id == "":
            raise ConfigError("client_id is empty: give an id, or None for a random one")
        try:
            Namespace(self.namespace)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @classmethod
    def of(
        cls, name_server: NameServers | ClientConfig, **options: Unpack[ClientOptions]
    ) -> ClientConfig:
        """The config that the arguments of a client mean.

        :param name_server: the name server, or a config, of which `options` replace values.
        """
        if isinstance(name_server, ClientConfig):
            return replace(name_server, **options)
        return cls(name_server, **options)

    @property
    def address_server(self) -> str | None:
        """The URL of the server that tells the addresses of the name servers, if there is one."""
        assert isinstance(self.name_server, str)  # a list was joined
        url = self.name_server.strip()
        return url if "://" in url else None

    @property
    def addresses(self) -> list[str]:
        """The addresses of the name servers, if the config has them."""
        assert isinstance(self.name_server, str)  # a list was joined
        if self.address_server is not None:
            return []
        parts = self.name_server.replace(",", ";").split(";")
        return [address for part in parts if (address := part.strip())]


_KINDS: Final = {
    "credentials": Credentials,
    "tls": Tls,
    "client_id": str,
    "runtime": Runtime,
    "namespace": str,
    "unit_name": str,
}


def _check_url(url: str) -> None:
    """Check the URL of an address server.

    :raises ConfigError: it is none, or has a user name and a password. These are not in the text.
    """
    if "@" in url:  # logs and errors of the client tell the URL
        raise ConfigError(
            "name_server is a URL with '@': an address server is asked without user name and "
            "password, give its URL as http://host:8080/rocketmq/nsaddr"
        )
    try:
        parts = urlsplit(url)
        is_usable = parts.hostname is not None and parts.port != 0
    except ValueError:
        is_usable = False
    if (
        not is_usable
        or parts.scheme not in ("http", "https")
        or len(parts.path) < 2
        or parts.query
        or parts.fragment
        or not url.isprintable()
        or set(url) & set(" ;,")
    ):
        raise ConfigError(
            f"name_server is {url!r}: give host:port of a name server, or the URL of one address "
            "server with its path, as http://host:8080/rocketmq/nsaddr"
        )
