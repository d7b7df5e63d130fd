"""hetspec tokenize"""

from __future__ import annotations

from hetspec_client import calls
from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.commands.text import File, Text, given_text
from hetspec_client.terminal import write_json, write_line


def tokenize(text: Text = None, *, file: File = None, server: Server, as_json: AsJson = False) -> None:
    """Show the token ids of a text, as a raw prompt has them. With --json also their number and their strings."""
    given = given_text(text, file)
    with server.connect() as client:
        if as_json:
            write_json(client.call(calls.tokenize(given, return_token_strs=True)))
        else:
            write_line(" ".join(map(str, client.tokenize(given))))
