"""Settings of keys, pages and certificates that no service starts with: one line each, without a secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.settings import SETTINGS
from hetspec.rpc.settings import read_settings
from tests.contract.certificates import Certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Certificates(tmp_path_factory.mktemp("certificates")).folder / "verifier"


def refusal(
    service: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    for name, value in settings.items():
        monkeypatch.setenv(f"HETSPEC_{name}", value)
    with pytest.raises(SystemExit) as ended:
        read_settings(service, SETTINGS[service])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


@pytest.mark.parametrize("service", SETTINGS)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"RPC_TLS_CA": "ca"}, "give all three, or none"),
        ({"RPC_TLS_CERT": "cert", "RPC_TLS_KEY": "key"}, "give all three, or none"),
        ({"RPC_TLS_CA": "ca", "RPC_TLS_CERT": "cert", "RPC_TLS_KEY": "missing"}, "missing.pem is no file"),
        ({"RPC_TLS_CA": "key", "RPC_TLS_CERT": "cert", "RPC_TLS_KEY": "key"}, "holds no certificate"),
        ({"RPC_TLS_CA": "ca", "RPC_TLS_CERT": "ca", "RPC_TLS_KEY": "key"}, "belong together"),
    ],
)
def test_incomplete_or_wrong_files_of_mutual_tls(folder, service, settings, expected, monkeypatch, capsys):
    paths = {name: str(folder / f"{value}.pem") for name, value in settings.items()}
    told = refusal(service, paths, monkeypatch, capsys)
    assert told.startswith(f"{service}: ")
    assert expected in told


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"TLS_CERT": "{folder}/cert.pem"}, "give both, or neither"),
        ({"TLS_CERT": "{folder}/cert.pem", "TLS_KEY": "{folder}/ca.pem"}, "belong together"),
        ({"API_KEYS": "sk-secret"}, "HETSPEC_API_KEYS: entry 1"),
        ({"API_KEYS": "sk-secret-0123456789,sk-secret-0123456789"}, "HETSPEC_API_KEYS: entry 2"),
        ({"API_KEYS": ""}, "HETSPEC_API_KEYS: holds no key"),
        ({"API_KEYS": "sk-secret-0123456789", "API_KEYS_FILE": "{folder}/keys"}, "give one of them"),
        ({"API_KEYS": "sk-secret-0123456789", "TLS_CERT": "{folder}/cert.pem"}, "give both, or neither"),
        ({"API_KEYS_FILE": "{folder}/nowhere"}, "HETSPEC_API_KEYS_FILE"),
        ({"CORS_ORIGINS": "page.example"}, "HETSPEC_CORS_ORIGINS = 'page.example'"),
        ({"CORS_ORIGINS": "https://page.example/path"}, "HETSPEC_CORS_ORIGINS"),
    ],
)
def test_a_bad_setting_of_the_api(folder, settings, expected, monkeypatch, capsys):
    (folder / "keys").write_text("sk-secret-9876543210")
    values = {name: value.format(folder=folder) for name, value in settings.items()}
    told = refusal("orchestrator", values, monkeypatch, capsys)
    assert expected in told
    assert "sk-secret" not in told


_ON_PHONE = {"CLOCK": "emulated", "HARDWARE": "oneplus12"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"CLOCK": "fast"}, "HETSPEC_CLOCK = 'fast'"),
        ({"CLOCK": "emulated"}, "HETSPEC_HARDWARE: HETSPEC_CLOCK=emulated needs one of "),
        ({"CLOCK": "paced", "COST_AS": "llama2-7b:int4"}, "HETSPEC_HARDWARE: HETSPEC_CLOCK=paced needs one of "),
        ({"CLOCK": "emulated", "HARDWARE": "no-such"}, "HETSPEC_HARDWARE = 'no-such'"),
        ({"CLOCK": "emulated", "HARDWARE": "missing.yaml"}, "HETSPEC_HARDWARE = 'missing.yaml'"),
        ({"CLOCK": "emulated", "HARDWARE": "oneplus12", "COST_AS": "gpt:int4"}, "HETSPEC_COST_AS = 'gpt:int4'"),
        ({"CLOCK": "emulated", "HARDWARE": "oneplus12", "COST_AS": "llama2-7b"}, "HETSPEC_COST_AS = 'llama2-7b'"),
        ({"CLOCK": "emulated", "HARDWARE": "oneplus12", "PACE": "2"}, "HETSPEC_PACE: needs HETSPEC_CLOCK=paced"),
        ({"CLOCK": "paced", "HARDWARE": "oneplus12", "PACE": "0"}, "HETSPEC_PACE = '0'"),
        ({"HARDWARE": "oneplus12"}, "need HETSPEC_CLOCK=emulated or paced"),
        ({"HARDWARE_SET": "contention=off"}, "HETSPEC_HARDWARE_SET: needs HETSPEC_HARDWARE"),
        ({"HARDWARE_SET": "contention", **_ON_PHONE}, "HETSPEC_HARDWARE_SET = 'contention'"),
        ({"HARDWARE_SET": "contntion=off", **_ON_PHONE}, "HETSPEC_HARDWARE_SET: oneplus12: contntion: Extra inputs"),
        ({"COST_AS": "llama2-7b:int4"}, "need HETSPEC_CLOCK=emulated or paced"),
    ],
)
def test_clocks_and_hardware_that_do_not_fit(settings, expected, monkeypatch, capsys):
    told = refusal("orchestrator", settings, monkeypatch, capsys)
    assert told.startswith("orchestrator: ")
    assert expected in told
