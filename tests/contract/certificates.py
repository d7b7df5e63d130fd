"""Certificates as `deploy.certificates` makes them, and some that nobody should trust."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from deploy.certificates import SERVICES, Authority
from hetspec.rpc.tls import RpcTls, certificate_name


def rpc_tls(folder: Path) -> RpcTls:
    return RpcTls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")


class Certificates:
    """By service; `stranger` is of another authority, `expired` of the right one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        for service in SERVICES:
            self.authority.issue(folder / service, [certificate_name(service), "localhost"])
        self.authority.issue(
            folder / "expired", ["verifier", "localhost"], days=timedelta(minutes=-1) / timedelta(days=1)
        )
        Authority(folder / "other").issue(folder / "stranger", ["verifier", "localhost"])
        (folder / "stranger" / "ca.pem").write_bytes(self.authority.pem)  # it trusts us, and we not it

    def __getitem__(self, service: str) -> RpcTls:
        return rpc_tls(self.folder / service)
