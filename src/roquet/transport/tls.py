"""TLS as clients see it: whom they trust, who they say they are, what a failed handshake means.

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
"""OpenSSL's numbers for a certificate that is good, but for another host or address."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Connections to name servers and brokers are encrypted; all files are PEM.

    Other than Apache's client, which trusts anybody unless told otherwise, this one verifies.

    :param ca_file: the authorities whose certificates are trusted; the machine's own without it.
    :param cert_file: the client's certificate, for servers that want one (`tls.server.need.client.auth`).
    :param key_file: its key, if that is not in `cert_file`.
    :param key_password: for an encrypted key; in no `repr`.
    :param verify: "full": an authority vouches for the server, and the certificate names the host that is spoken to.
        "ca": whatever it names; brokers are spoken to at the addresses that name servers tell, which certificates
        often lack. "none": nothing is verified; whoever is on the way can read and change everything.
    :raises ConfigError: `verify` is none of these, or there is a key without a certificate.
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
        """What connections are made with.

        :raises ConfigError: a file cannot be read or used; says which.
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
        raise ConfigError(f"TLS: authorities in {ca_file}: {_reason(error)}") from error


def _present(
    context: ssl.SSLContext,
    cert_file: str | Path,
    key_file: str | Path | None,
    password: str | None,
) -> None:
    """Without a password OpenSSL would ask for one on the terminal."""

    def missing() -> NoReturn:
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
    """What it means that no TLS connection came about; None where not even a plain one did."""
    match error:
        case ssl.SSLCertVerificationError(verify_code=code) if code in _WRONG_NAME:
            why = f"its certificate is for another host ({error.verify_message})"
            return TlsError(
                f"{address}: {why}: use a name that it has, or ask for less (verify or tlsVerify: ca)"
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


_NO_TLS: Final = "it may take no TLS (tls.server.mode=disabled, or no broker of Apache's), or other versions of it"
