"""hetspec calibrate"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from calibration.errors import CalibrationError
from calibration.profile_file import write_profile
from calibration.report import tables
from calibration.rig import Addresses
from hetspec.rpc.tls import RpcTls
from hetspec.training.progress import Stages
from hetspec_client.commands.expand import expand
from hetspec_client.commands.server import Server
from hetspec_client.errors import InvalidInput
from hetspec_client.files import writable
from hetspec_client.terminal import write_line, write_tables

app = typer.Typer(add_completion=False)


def calibrate(
    *,
    out: Annotated[Path, Option(help="The profile to write, a .yaml file.")] = Path("host.yaml"),
    max_context: Annotated[int, Option(min=256, help="Tokens that a row attends to, at most.")] = 1024,
    seconds: Annotated[
        float, Option(min=1.0, help="Of measuring, about, where that is enough for every shape.")
    ] = 30.0,
    weight_store: Annotated[str, Option(envvar="HETSPEC_WEIGHT_STORE")] = "127.0.0.1:7001",
    verifier: Annotated[str, Option(envvar="HETSPEC_VERIFIER")] = "127.0.0.1:7002",
    drafter: Annotated[str, Option(envvar="HETSPEC_DRAFTER")] = "127.0.0.1:7003",
    sampler: Annotated[str, Option(envvar="HETSPEC_SAMPLER")] = "127.0.0.1:7004",
    server: Server,
) -> None:
    """Measure this machine with the units that run on it, and write a profile of hardware."""
    from calibration.calibration import Calibration  # takes a second to import: the list of verbs does not wait for it

    if out.suffix not in (".yaml", ".yml"):
        raise InvalidInput(f"--out {out}, must end with .yaml: HETSPEC_HARDWARE would take it for a name")
    writable("--out", out)
    addresses = Addresses(weight_store, verifier, drafter, sampler)
    with _telling() as stages, server.connect() as client:
        calibration = Calibration(addresses, client, max_context, seconds, _tls())
        with stages.stage("measuring", 100.0, "%") as bar:
            profile = calibration.run(out.stem, lambda share: bar.advance(100.0 * share))
    write_profile(out, profile)
    assert profile.measured is not None
    write_tables(tables(profile.measured))
    write_line(f"\n{out} is written: HETSPEC_CLOCK=emulated HETSPEC_HARDWARE={out} make up")


@contextmanager
def _telling() -> Iterator[Stages]:
    try:
        yield Stages(Console(stderr=True))
    except (CalibrationError, ValueError) as error:
        raise InvalidInput(str(error)) from error


def _tls() -> RpcTls | None:
    """As the services are told of it."""
    paths = [os.environ.get(f"HETSPEC_RPC_TLS_{name}") for name in ("CA", "CERT", "KEY")]
    ca, cert, key = (Path(path) if path else None for path in paths)
    return RpcTls(ca, cert, key) if ca and cert and key else None


app.command()(expand(calibrate))
