"""How to reach the HTTP API that was started: address, key, certificate."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.settings import Service


@dataclass(frozen=True, slots=True)
class Access:
    """key: the first of those that are let in. ca: beside the certificate, where `deploy.certificates` puts it."""

    url: str
    key: str | None = None
    ca: Path | None = None

    @classmethod
    def to(cls, orchestrator: Service) -> Access:
        env = orchestrator.env
        if (cert := env.get("HETSPEC_TLS_CERT")) is None:
            return cls(f"http://{orchestrator.address}", _first_key(env))
        ca = Path(cert).with_name("ca.pem")
        return cls(f"https://{orchestrator.address}", _first_key(env), ca if ca.exists() else None)

    @property
    def curl_options(self) -> str:
        """For a shell: the key stays in its variable."""
        key = ' -H "authorization: Bearer $HETSPEC_API_KEY"' if self.key else ""
        ca = f" --cacert {self.ca}" if self.ca else ""
        return f"{ca}{key}"

    def open(self, path: str, timeout_s: float, body: bytes | None = None) -> Any:
        """A response, to be closed. Raises OSError."""
        headers = {"content-type": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url + path, body, headers)
        context = ssl._create_unverified_context()  # a port of this host, whatever name its certificate is for
        return urllib.request.urlopen(request, timeout=timeout_s, context=context)


def _first_key(env: Mapping[str, str]) -> str | None:
    if (file := env.get("HETSPEC_API_KEYS_FILE")) is not None:
        entries = Path(file).read_text("utf-8").splitlines()
    else:
        entries = env.get("HETSPEC_API_KEYS", "").split(",")
    found = (entry.partition("#")[0].split() for entry in entries)
    return next((words[0] for words in found if words), None)
