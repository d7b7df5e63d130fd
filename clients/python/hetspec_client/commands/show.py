"""An answer on the terminal, token by token."""

from __future__ import annotations

from hetspec_client.answers import Answer
from hetspec_client.calls import Call
from hetspec_client.client import Client
from hetspec_client.commands.summary import Stopwatch
from hetspec_client.terminal import write, write_line


def show(client: Client, call: Call, watch: Stopwatch) -> Answer:
    """A line of its own in the end. Leaving it early, by whatever exception, ends the request."""
    with client.stream(call) as stream:
        for chunk in stream:
            if chunk.text:
                watch.first()
                write(chunk.text)
        write_line()
        return stream.answer
