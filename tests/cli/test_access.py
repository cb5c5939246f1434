"""Keys and TLS on the command line, in the environment and in a file."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from roquet.admin.access import Access
from roquet.cli.access import access, access_options
from roquet.cli.main import main
from roquet.errors import ConfigError
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.tls import Tls

KEYS = Credentials("account", "hidden")


def told(*options: object, **environment: str) -> Access:
    """What a command with these options would use."""
    found: list[Access] = []

    @click.command()
    @access_options
    def command() -> None:
        found.append(access())

    result = CliRunner().invoke(command, [str(option) for option in options], env=environment)
    if result.exception is not None:
        raise result.exception
    return found[0]


def test_nothing_is_signed_or_encrypted_unless_somebody_says_so() -> None:
    assert told() == Access()


def test_the_secret_comes_from_the_environment() -> None:
    assert told("--access-key", "account", ROQUET_SECRET_KEY="hidden") == Access(credentials=KEYS)
    assert told(ROQUET_ACCESS_KEY="account", ROQUET_SECRET_KEY="hidden") == Access(credentials=KEYS)


def test_the_secret_is_no_option() -> None:
    with pytest.raises(SystemExit):
        told("--secret-key", "hidden")


def test_everything_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "access"
    file.write_text("accessKey=account\nsecretKey=hidden\ntlsCaFile=ca.pem\ntlsKeyPassword=p\n")
    assert told("--access-file", file) == Access(
        credentials=KEYS, tls=Tls("ca.pem", key_password="p")
    )
    assert told("--tls-verify", "ca", ROQUET_ACCESS_FILE=str(file))["tls"] == Tls(
        "ca.pem", key_password="p", verify="ca"
    )


@pytest.mark.parametrize("options", [["--use-tls"], ["--tls-verify", "full"]])
def test_tls_without_anything_else_trusts_the_machine_s_authorities(options: list[str]) -> None:
    assert told(*options)["tls"] == Tls()


def test_tls_from_the_environment() -> None:
    assert told(ROQUET_USE_TLS="true", ROQUET_TLS_CA_FILE="ca.pem") == Access(tls=Tls("ca.pem"))


def test_half_of_the_keys_is_an_error() -> None:
    with pytest.raises(ConfigError, match="secretKey is missing"):
        told("--access-key", "account")


@pytest.mark.parametrize(
    "command", [("ha", "status"), ("ha", "promote", "a:1"), ("pipeline", "lag", "folder")]
)
def test_commands_that_ask_a_cluster_have_the_options(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, [*command, "--help"])
    for option in ("--access-file", "--access-key", "--use-tls", "--tls-ca-file", "--tls-verify"):
        assert option in shown.output


def test_what_cannot_be_used_ends_a_command_with_a_line() -> None:
    result = CliRunner().invoke(main, ["ha", "status", "--tls-ca-file", "/absent/ca.pem"])
    assert result.exit_code == 2
    assert "roquet: TLS: CA file /absent/ca.pem: No such file or directory" in result.output
