"""Text that a user gives: a file, or stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hetspec_client.errors import InvalidInput

STDIN = Path("-")

Text = Annotated[str | None, Argument(help="Default: what stdin holds.", show_default=False)]
File = Annotated[Path | None, Option("--file", "-f", help="Where the text is; - is stdin.")]


def given_text(argument: str | None, file: Path | None) -> str:
    """Of an argument, a file or stdin. Raises InvalidInput when there is none, or more than one."""
    if argument is not None and file is not None:
        raise InvalidInput("give a text or --file, not both")
    if argument is not None:
        return argument
    if file is None and sys.stdin.isatty():
        raise InvalidInput("no text: give one as an argument, with --file, or on stdin")
    return read_text(file or STDIN)


def read_text(path: Path) -> str:
    """Of the file; `-` is stdin. Raises InvalidInput when it cannot be read or is not UTF-8."""
    if path == STDIN:
        return decode(sys.stdin.buffer.read(), "stdin")
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from error


def decode(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: not UTF-8 at byte {error.start}") from error
