"""The server's certificate, taken up again when its files are replaced."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from hetspec.rpc.logs import log_event
from hetspec.rpc.tls import check_key_pair


class ServerCertificate:
    """PEM files: a certificate, its chain below it, and its key."""

    def __init__(self, cert: Path, key: Path) -> None:
        self.cert = cert
        self.key = key
        self._seen = self._version()

    def renew(self, context: ssl.SSLContext) -> None:
        """Connections opened from here on see what lies there now; a pair that does not fit changes nothing."""
        if (seen := self._version()) == self._seen:
            return
        self._seen = seen
        try:
            check_key_pair(self.cert, self.key)
            context.load_cert_chain(self.cert, self.key)
        except (ValueError, OSError) as error:
            log_event("certificate not taken up", level=logging.WARNING, reason=str(error))
        else:
            log_event("certificate taken up")

    def _version(self) -> tuple[float, ...]:
        try:
            found = (self.cert.stat(), self.key.stat())
        except OSError:
            return ()
        return tuple(value for stat in found for value in (stat.st_mtime_ns, stat.st_ino, stat.st_size))
