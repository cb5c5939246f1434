"""Certificates for tests, made anew each time: an authority, and whom it vouches for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

PASSWORD = "opens the key"


@dataclass(frozen=True)
class Files:
    """PEM files of one certificate."""

    cert: Path
    key: Path


class Authority:
    """Invariant: everything that it writes lies in `folder`; keys are PKCS#8, which Java takes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.file = folder / "ca.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self._authority.cert_pem.write_to_path(str(self.file))

    def vouch(self, *hosts: str, password: str | None = None) -> Files:
        """A certificate for these hosts or addresses."""
        made = self._authority.issue_cert(*hosts)
        files = Files(self._folder / f"{hosts[0]}.cert.pem", self._folder / f"{hosts[0]}.key.pem")
        files.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        hidden: KeySerializationEncryption = NoEncryption()
        if password is not None:
            hidden = BestAvailableEncryption(password.encode())
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
        return files
