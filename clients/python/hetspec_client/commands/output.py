"""Options for how an answer is printed."""

from __future__ import annotations

from typing import Annotated

from typer import Option

AsJson = Annotated[bool, Option("--json", help="Print the whole answer as JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No statistics on stderr.")]
