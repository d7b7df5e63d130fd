"""python -m verifier: serves passes of the target model until SIGTERM."""

from __future__ import annotations

import sys

from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.server import ServerSettings, run_server
from hetspec.rpc.settings import read_settings
from hetspec.rpc.unit import UnitService
from verifier.config import VerifierSettings
from verifier.unit import load


def main() -> int:
    settings = read_settings("verifier", VerifierSettings)
    return run_server(UnitService(VERIFY, lambda: load(settings)), ServerSettings(settings.host, settings.port))


if __name__ == "__main__":
    sys.exit(main())
