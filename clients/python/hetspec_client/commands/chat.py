"""hetspec chat"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from typer import Option

from hetspec_client import calls
from hetspec_client.client import Client
from hetspec_client.commands.conversation import Conversation
from hetspec_client.commands.output import Quiet
from hetspec_client.commands.request import Request
from hetspec_client.commands.server import Server
from hetspec_client.commands.show import show
from hetspec_client.commands.summary import Stopwatch, summary
from hetspec_client.commands.text import decode
from hetspec_client.errors import HetspecError
from hetspec_client.terminal import OutputFailed, complain, note, write_line

_QUIT = "/quit"


def chat(
    *,
    system: Annotated[str | None, Option(help="What the model is told first.")] = None,
    request: Request,
    server: Server,
    quiet: Quiet = False,
) -> None:
    """Talk with the model; /help tells what else can be typed. Piped in, every line is a message."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    conversation = Conversation(request.options(), system)
    with server.connect(request.timeout) as client:
        talk = Talk(client, conversation, quiet, interactive)
        for line in _typed() if interactive else _piped():
            if line == _QUIT:
                break
            talk.hear(line)


def _typed() -> Iterator[str]:
    """Lines with the editing and history of readline."""
    import readline  # noqa: F401 # it changes `input`

    while True:
        try:
            yield input("> ").strip()
        except EOFError:
            write_line()
            return
        except UnicodeDecodeError:
            complain("what was typed is not UTF-8")


def _piped() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield decode(line, "stdin").strip()


@dataclass(frozen=True, slots=True)
class Talk:
    client: Client
    conversation: Conversation
    quiet: bool
    interactive: bool

    def hear(self, line: str) -> None:
        """A failed turn leaves the conversation as it was. Only where somebody can try again is it not the end."""
        try:
            if line.startswith("/") and not line.startswith("//"):
                for told in self.conversation.command(line).splitlines():
                    note(told)
            elif line:
                self._answer(line.removeprefix("/") if line.startswith("//") else line)
        except OutputFailed:
            raise
        except HetspecError as error:
            if not self.interactive:
                raise
            complain(error)

    def _answer(self, text: str) -> None:
        conversation, watch = self.conversation, Stopwatch()
        call = calls.chat(conversation.messages(text), conversation.options, stream=True)
        try:
            answer = show(self.client, call, watch)
        except KeyboardInterrupt:
            if not self.interactive:
                raise
            write_line()
            note("interrupted, and forgotten")
            return
        conversation.add(text, answer.text)
        if not self.quiet:
            note(summary(answer, watch))
