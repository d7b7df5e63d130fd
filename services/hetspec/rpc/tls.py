"""Mutual TLS between the services: each shows a certificate of one authority, and asks its peer for one."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True)
class RpcTls:
    """PEM files. Read again for every connection: what is put in their place is used from the next one on.

    ca: whoever it signed is one of the services. cert, key: this service's own; the certificate is for two DNS names,
    the service's (`certificate_name`), which its peers check, and localhost, which a probe beside it checks.
    """

    ca: Path
    cert: Path
    key: Path

    def check(self) -> None:
        """Raises ValueError that names the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for path in (self.ca, self.cert, self.key):
            if not path.is_file():
                raise ValueError(f"{path} is no file")
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise ValueError(f"{self.ca} holds no certificate: {error}") from None
        check_key_pair(self.cert, self.key)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Raises OSError."""
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), self.key.read_bytes(), self.cert.read_bytes())

    def server_credentials(self) -> grpc.ServerCredentials:
        """A peer without a certificate of the authority is refused. Raises OSError."""
        return grpc.dynamic_ssl_server_credentials(self._server_files(), self._server_files, True)

    def _server_files(self) -> grpc.ServerCertificateConfiguration:
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], self.ca.read_bytes())


def certificate_name(service: str) -> str:
    """The DNS name of `service` ("weight_store") in its certificate, wherever it runs."""
    return service.replace("_", "-")


def check_key_pair(cert: Path, key: Path) -> None:
    """Raises ValueError unless the two belong together."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        reason = error.strerror or error
        raise ValueError(f"{cert} and {key} are no certificate and key that belong together: {reason}") from None
