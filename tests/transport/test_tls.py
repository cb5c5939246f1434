"""TLS connections to a server in this process, and what is said of those that do not come about."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from roquet.errors import ConfigError, ConnectionClosed, TlsError
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.tls import Tls
from tests.transport.certificates import PASSWORD, Authority, Files

CODE = 10
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_files(authority: Authority) -> Files:
    return authority.vouch(HOST)


@pytest.fixture(scope="module")
def client_files(authority: Authority) -> Files:
    return authority.vouch("client", password=PASSWORD)


def echo(request: Command, _: Connection) -> Command:
    return request.answer(0, body=request.body)


@asynccontextmanager
async def serving(files: Files | None, trusted: Path | None = None) -> AsyncIterator[str]:
    """An address that answers; with `trusted` it wants certificates of that authority."""
    context = None
    if files is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(files.cert, files.key)
        if trusted is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(trusted)
    open_ones: list[Connection] = []

    def accept() -> Connection:
        open_ones.append(Connection({CODE: echo}, is_server=True))
        return open_ones[-1]

    server = await asyncio.get_running_loop().create_server(accept, HOST, 0, ssl=context)
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in open_ones:
            connection.abort()
        await asyncio.sleep(0.05)


async def ask(address: str, tls: Tls | None, body: bytes = b"hi") -> bytes:
    channels = Channels(tls=tls)
    try:
        return (await channels.call(address, Command(CODE, body=body), 3000)).body
    finally:
        await channels.close()
        await asyncio.sleep(0)


async def test_a_server_that_is_trusted_answers(authority: Authority, server_files: Files) -> None:
    body = bytes(range(256)) * 8192
    async with serving(server_files) as address:
        assert await ask(address, Tls(authority.file), body) == body


async def test_a_key_with_a_password_opens_a_server_that_wants_certificates(
    authority: Authority, server_files: Files, client_files: Files
) -> None:
    tls = Tls(authority.file, client_files.cert, client_files.key, PASSWORD)
    async with serving(server_files, authority.file) as address:
        assert await ask(address, tls) == b"hi"


async def test_a_server_that_wants_certificates_is_said_to(
    authority: Authority, server_files: Files
) -> None:
    async with serving(server_files, authority.file) as address:
        with pytest.raises(
            ConnectionClosed, match=r"after the TLS handshake.*: it may want another client"
        ):
            await ask(address, Tls(authority.file))


async def test_a_connection_that_a_server_ended_before_it_was_used_says_why(
    authority: Authority, server_files: Files
) -> None:
    channels = Channels(tls=Tls(authority.file))
    async with serving(server_files, authority.file) as address:
        connection = await channels.connection(address)
        while connection.is_open:
            await asyncio.sleep(0)
        with pytest.raises(
            ConnectionClosed, match=r"after the TLS handshake.*: it may want another client"
        ):
            await connection.calls.call(Command(CODE), 3000)
    await channels.close()


async def test_a_server_of_an_unknown_authority_is_not_trusted(
    server_files: Files, tmp_path: Path
) -> None:
    async with serving(server_files) as address:
        with pytest.raises(
            TlsError, match=r"is not trusted \(.*\): give the authority that signed it \(ca_file"
        ):
            await ask(address, Tls(Authority(tmp_path).file))
        with pytest.raises(TlsError, match="is not trusted"):
            await ask(address, Tls())


async def test_a_certificate_for_another_host_is_not_enough_unless_that_is_said(
    authority: Authority,
) -> None:
    async with serving(authority.vouch("elsewhere.example")) as address:
        with pytest.raises(
            TlsError, match=r"is for another host .*: use a host name of the certificate"
        ):
            await ask(address, Tls(authority.file))
        assert await ask(address, Tls(authority.file, verify="ca")) == b"hi"


async def test_nothing_is_verified_where_that_is_asked_for(
    server_files: Files, tmp_path: Path
) -> None:
    async with serving(server_files) as address:
        assert await ask(address, Tls(Authority(tmp_path).file, verify="none")) == b"hi"


async def test_a_server_without_tls_is_said_to_have_none(authority: Authority) -> None:
    async with serving(None) as address:
        with pytest.raises(TlsError, match=r"it may not accept TLS"):
            await ask(address, Tls(authority.file))


async def test_a_plain_client_of_a_server_with_tls_learns_why_it_is_closed(
    server_files: Files,
) -> None:
    async with serving(server_files) as address:
        with pytest.raises(
            ConnectionClosed, match="before it answered anything: it may take TLS only"
        ):
            await ask(address, None)


async def test_nobody_there_is_no_matter_of_tls(authority: Authority) -> None:
    async with serving(None) as address:
        pass
    with pytest.raises(ConnectionClosed, match=f"cannot connect to {address}") as refused:
        await ask(address, Tls(authority.file))
    assert not isinstance(refused.value, TlsError)


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        (
            lambda folder, files: Tls(folder / "absent.pem"),
            "CA file .*absent.pem: No such file",
        ),
        (lambda folder, files: Tls(files.key), "CA file .*: is not usable PEM"),
        (lambda folder, files: Tls(None, files.cert, files.key), "is encrypted: give its password"),
        (lambda folder, files: Tls(None, files.cert, files.key, "wrong"), "has another password"),
        (
            lambda folder, files: Tls(None, folder / "absent.pem"),
            "certificate .*absent.pem: No such file",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tls: Callable[[Path, Files], Tls], words: str, tmp_path: Path, client_files: Files
) -> None:
    with pytest.raises(ConfigError, match=words):
        tls(tmp_path, client_files).context()
