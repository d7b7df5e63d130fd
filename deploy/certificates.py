"""python -m deploy.certificates FOLDER [NAME ...]: an authority of your own, and certificates of it for every service.

FOLDER/authority keeps the authority, and its key should stay there. Each of the other folders holds ca.pem, cert.pem
and key.pem for one service: orchestrator, weight_store, verifier, drafter, sampler; `local` for all on one host;
`https` for the HTTP API under the names and addresses given, localhost and 127.0.0.1 if none are.
Run again, it renews the certificates and keeps the authority.
"""

from __future__ import annotations

import ipaddress
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError:
    sys.exit("deploy.certificates: needs the package cryptography: .venv/bin/python -m pip install cryptography")

from hetspec.rpc.tls import certificate_name

SERVICES = ("orchestrator", "weight_store", "verifier", "drafter", "sampler")
AUTHORITY_DAYS, SERVICE_DAYS = 3650, 397
_CLOCKS_DIFFER = timedelta(hours=1)


class Authority:
    """Kept in `folder`: made there if there is none."""

    def __init__(self, folder: Path) -> None:
        cert, key = folder / "ca.pem", folder / "key.pem"
        if not key.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._make(cert, key)
        self.pem = cert.read_bytes()
        self._cert = x509.load_pem_x509_certificate(self.pem)
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded

    def issue(self, folder: Path, names: list[str], days: float = SERVICE_DAYS) -> None:
        """ca.pem, cert.pem and key.pem in `folder`, for these DNS names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        cert = (
            _builder(names[0], self._cert.subject, key, days)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "ca.pem", self.pem)
        _write(folder / "key.pem", _private_pem(key), mode=0o600)
        _write(folder / "cert.pem", cert.public_bytes(serialization.Encoding.PEM))

    @staticmethod
    def _make(cert: Path, key: Path) -> None:
        private = ec.generate_private_key(ec.SECP256R1())
        name = "hetspec services"
        made = (
            _builder(name, _subject(name), private, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
            .sign(private, hashes.SHA256())
        )
        _write(cert, made.public_bytes(serialization.Encoding.PEM))
        _write(key, _private_pem(private), mode=0o600)


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def make_certificates(folder: Path, https_names: list[str]) -> None:
    authority = Authority(folder / "authority")
    names = {service: certificate_name(service) for service in SERVICES}
    for service, name in names.items():
        authority.issue(folder / service, [name, "localhost"])
    authority.issue(folder / "local", [*names.values(), "localhost"])
    authority.issue(folder / "https", https_names or ["localhost", "127.0.0.1"])


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """At once: a reader sees the old file or the new one."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode)
    draft.write_bytes(content)
    draft.replace(path)


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder, *https_names = arguments
    make_certificates(Path(folder), https_names)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
