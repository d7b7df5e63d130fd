"""hetspec models"""

from __future__ import annotations

from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.terminal import write_json, write_table


def models(*, server: Server, as_json: AsJson = False) -> None:
    """List what the server serves."""
    with server.connect() as client:
        told = client.models()
    if as_json:
        write_json([model.raw for model in told])
    else:
        write_table([("model", "context"), *((model.id, str(model.max_model_len or "")) for model in told)])
