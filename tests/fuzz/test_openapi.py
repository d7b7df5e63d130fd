"""The OpenAPI document is true: requests made from it are answered as it says, and nothing made from it breaks us."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from tests.contract.fake_engine import FakeEngine, says

_SETTINGS = OrchestratorSettings()
_APP = create_app(FakeEngine(says("ok")), _SETTINGS, Admission(_SETTINGS.max_running, _SETTINGS.max_queued))
# What looks at the units needs units: test_observe.py asks there.
schema = schemathesis.openapi.from_asgi("/openapi.json", _APP).exclude(path_regex="^/v1/hetspec/")


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_what_the_document_allows_is_no_server_error(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=[not_a_server_error])
