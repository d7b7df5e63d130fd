"""How the launcher reaches what it started, and what it tells whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local import example, settings
from deploy.local.access import Access
from deploy.local.settings import UNITS

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"


def access(environ: dict[str, str]) -> Access:
    return Access.to(settings.services(environ)[-1])


def test_without_keys_and_certificates_the_example_is_a_plain_request():
    found = access({"HETSPEC_HOST": "0.0.0.0", "HETSPEC_PORT": "8123"})
    assert found == Access("http://127.0.0.1:8123")
    assert example.command(found).startswith("curl http://127.0.0.1:8123/v1/chat/completions -H 'content-type")


def test_with_a_certificate_the_example_speaks_https_and_trusts_the_authority_beside_it(tmp_path: Path):
    cert = tmp_path / "cert.pem"
    found = access({"HETSPEC_TLS_CERT": str(cert)})
    assert found == Access("https://127.0.0.1:8000")
    cert.with_name("ca.pem").touch()
    assert f"--cacert {tmp_path}/ca.pem" in example.command(access({"HETSPEC_TLS_CERT": str(cert)}))


def test_the_first_key_is_used_and_never_printed(tmp_path: Path):
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n{ALICE} alice running=1\n{BOB}\n")
    for environ in ({"HETSPEC_API_KEYS": f"{ALICE} alice,{BOB}"}, {"HETSPEC_API_KEYS_FILE": str(file)}):
        found = access(environ)
        assert found.key == ALICE
        assert "Bearer $HETSPEC_API_KEY" in example.command(found)
        assert ALICE not in example.command(found)


@pytest.mark.parametrize("secret", ["HETSPEC_API_KEYS", "HETSPEC_API_KEYS_FILE"])
def test_only_the_orchestrator_is_told_the_keys(secret: str):
    services = settings.services({secret: ALICE, "HETSPEC_THREADS": "2"})
    assert [service.name for service in services if secret in service.env] == ["orchestrator"]
    assert all(service.env["HETSPEC_THREADS"] == "2" for service in services)
    assert len(services) == len(UNITS) + 1


def test_what_the_command_line_client_reads_is_no_setting_of_a_service():
    environ = {"HETSPEC_URL": "http://x", "HETSPEC_API_KEY": ALICE}
    settings.check(environ)
    assert not any(environ.keys() & service.env.keys() for service in settings.services(environ))
