"""What has been said, and what a user may change about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hetspec_client.errors import InvalidInput
from hetspec_client.options import Json

HELP = """\
/reset          forget what was said
/system TEXT    tell the model this first; without a text, nothing
/mode NAME      plain, chain, tree, lever, ahasd or full; without a name, the server's
/save FILE      write the conversation as the body of a request
/quit           end; so does Ctrl-D
A message that begins with / is written with two."""


@dataclass(slots=True)
class Conversation:
    """options: of every request. turns: user and assistant by turns."""

    options: Json
    system: str | None = None
    turns: list[Json] = field(default_factory=list)

    def messages(self, text: str) -> list[Json]:
        """The whole dialogue, with `text` as the user's next message."""
        told = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*told, *self.turns, {"role": "user", "content": text}]

    def add(self, text: str, answer: str) -> None:
        self.turns += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]

    def command(self, line: str) -> str:
        """Does what a line such as `/mode tree` says. Returns what to tell the user. Raises InvalidInput."""
        name, _, argument = line.partition(" ")
        if name not in _COMMANDS:
            raise InvalidInput(f"there is no {name}; /help lists what there is")
        return _COMMANDS[name](self, argument.strip())

    def _help(self, _: str) -> str:
        return HELP

    def _reset(self, _: str) -> str:
        self.turns.clear()
        return "forgotten"

    def _system(self, text: str) -> str:
        self.system = text or None
        return f"system: {text}" if text else "no system message"

    def _mode(self, name: str) -> str:
        self.options = {key: value for key, value in self.options.items() if key != "mode"}
        if name:
            self.options["mode"] = name
        return f"mode: {name or 'as the server has it'}"

    def _save(self, path: str) -> str:
        if not path:
            raise InvalidInput("/save needs the name of a file")
        *messages, _ = self.messages("")
        try:
            Path(path).expanduser().write_text(json.dumps({"messages": messages}, ensure_ascii=False, indent=2) + "\n")
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}") from error
        return f"{len(messages)} messages in {path}"


_COMMANDS: dict[str, Callable[[Conversation, str], str]] = {
    "/help": Conversation._help,
    "/reset": Conversation._reset,
    "/system": Conversation._system,
    "/mode": Conversation._mode,
    "/save": Conversation._save,
}
