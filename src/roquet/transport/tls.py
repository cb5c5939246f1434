"""TLS for clients: trusted authorities, client certificate, errors of failed handshakes.

See docs/protocol/remoting.md#tls.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeAlias, get_args

from roquet.errors import ConfigError, TlsError

Verify: TypeAlias = Literal["full", "ca", "none"]

_WRONG_NAME: Final = frozenset((62, 64))
"""OpenSSL's error codes for a valid certificate of another host name (62) or address (64)."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of connections to name servers and brokers. All files are PEM.

    Servers are verified by default. Apache's client verifies none unless it is configured to.

    :param ca_file: trusted certificate authorities; None: those of the machine.
    :param cert_file: the client certificate, for servers with `tls.server.need.client.auth`.
    :param key_file: its key; None: the key is in `cert_file`.
    :param key_password: for an encrypted key. It is left out of the `repr`.
    :param verify: "full": a trusted authority signed the server's certificate, and it names the
        host. "ca": the host name is not compared; certificates often lack the broker addresses that
        name servers return. "none": nothing is verified; an attacker on the network can read and
        change everything.
    :raises ConfigError: `verify` has another value, or `key_file` comes without `cert_file`.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: Verify = "full"

    def __post_init__(self) -> None:
        if self.verify not in get_args(Verify):
            raise ConfigError(
                f"TLS: verify is {self.verify!r}, allowed are {', '.join(get_args(Verify))}"
            )
        if self.key_file is not None and self.cert_file is None:
            raise ConfigError(f"TLS: key file {self.key_file} without a certificate file")

    def context(self) -> ssl.SSLContext:
        """Return the `ssl` context for new connections.

        :raises ConfigError: a file cannot be read or used; the message names it.
        """
        context = _trusting(self.ca_file)
        if self.verify != "full":
            context.check_hostname = False
        if self.verify == "none":
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            _present(context, self.cert_file, self.key_file, self.key_password)
        return context


def _trusting(ca_file: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"TLS: CA file {ca_file}: {_reason(error)}") from error


def _present(
    context: ssl.SSLContext,
    cert_file: str | Path,
    key_file: str | Path | None,
    password: str | None,
) -> None:
    """Load the client's certificate and key into `context`."""

    def missing() -> NoReturn:
        # without this callback OpenSSL would ask for a password on the terminal
        raise ConfigError(
            f"TLS: the key in {key_file or cert_file} is encrypted: give its password"
        )

    try:
        context.load_cert_chain(cert_file, key_file, missing if password is None else password)
    except OSError as error:
        files = str(cert_file) if key_file is None else f"{cert_file} with the key in {key_file}"
        raise ConfigError(f"TLS: certificate {files}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"is not usable PEM, or has another password ({error.reason or error})"
    return error.strerror or str(error)


def handshake_error(address: str, error: OSError) -> TlsError | None:
    """Explain a failed TLS connection; None if the TCP connection failed already."""
    match error:
        case ssl.SSLCertVerificationError(verify_code=code) if code in _WRONG_NAME:
            why = f"its certificate is for another host ({error.verify_message})"
            return TlsError(
                f"{address}: {why}: use a host name of the certificate, "
                "or do not compare host names (verify or tlsVerify: ca)"
            )
        case ssl.SSLCertVerificationError():
            why = f"its certificate is not trusted ({error.verify_message})"
            return TlsError(
                f"{address}: {why}: give the authority that signed it (ca_file or tlsCaFile)"
            )
        case ssl.SSLError():
            return TlsError(f"{address}: TLS handshake failed ({error.reason or error}): {_NO_TLS}")
        case ConnectionResetError() | ConnectionAbortedError() | BrokenPipeError():
            return TlsError(f"{address} ended the TLS handshake: {_NO_TLS}")
    return None


_NO_TLS: Final = (
    "it may not accept TLS (tls.server.mode=disabled, or a server without TLS), "
    "or only other TLS versions"
)
