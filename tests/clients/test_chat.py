"""hetspec chat"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from orchestrator.engine.request import Emission, GenerationRequest
from tests.clients.command import COMMAND, environ, failure_line
from tests.clients.servers import live, nothing_open, prompts
from tests.contract.fake_engine import FakeEngine, Step, byte_level_text, says, tokens

TEXT = byte_level_text()
_PATIENCE_S = 30.0


def test_every_request_holds_the_whole_dialogue(run_here):
    engine = FakeEngine(says("he", "y🙂"))
    with live(engine) as url:
        done = run_here("chat", "--quiet", url=url, stdin="one\n\nzwei ü\nthree".encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == "hey🙂\n" * 3
    first = "<user>one"
    second = f"{first}<assistant>hey🙂<user>zwei ü"
    third = f"{second}<assistant>hey🙂<user>three"
    assert prompts(engine) == [f"{prompt}<assistant>" for prompt in (first, second, third)]


def test_commands_change_what_is_sent(run_here, tmp_path):
    saved = tmp_path / "dialogue.json"
    engine = FakeEngine(says("a"))
    lines = ["one", "/mode plain", "/system brief", "two", f"/save {saved}", "/reset", "//three", "/quit", "four"]
    with live(engine) as url:
        done = run_here(
            "chat", "--quiet", "--mode", "chain", "--system", "long", url=url, stdin="\n".join(lines).encode()
        )
    assert done.returncode == 0
    assert prompts(engine) == [
        "<system>long<user>one<assistant>",
        "<system>brief<user>one<assistant>a<user>two<assistant>",
        "<system>brief<user>/three<assistant>",
    ]
    assert [request.mode for request in engine.requests] == ["chain", "plain", "plain"]
    roles = [message["role"] for message in json.loads(saved.read_text())["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


def test_help_names_every_command(run_here):
    with live(FakeEngine(says("a"))) as url:
        told = run_here("chat", url=url, stdin=b"/help").stderr.decode()
    assert re.findall(r"^/\w+", told, re.MULTILINE) == ["/reset", "/system", "/mode", "/save", "/quit"]


@pytest.mark.parametrize(
    ("line", "told", "code"),
    [
        (b"/bogus", "there is no /bogus", 2),
        (b"/save", "name of a file", 2),
        (b"/save /no/such/folder/file", "/no/such/folder/file: No such file", 2),
        (b"/mode fast\nhi", "hetspec.mode: ", 2),
        (b"a\xff", "not UTF-8 at byte 1", 2),
    ],
)
def test_piped_chat_ends_at_the_first_failure(run_here, line, told, code):
    engine = FakeEngine(says("a"))
    with live(engine) as url:
        done = run_here("chat", "--quiet", url=url, stdin=line + b"\nmore")
    assert told in done.stderr.decode().splitlines()[-1]
    assert (done.returncode, engine.requests) == (code, [])


def test_failed_answer_ends_a_piped_chat_with_one_line(run_here):
    engine = FakeEngine(lambda _: [Emission("a", (), None), KeyError("a bug")])
    with live(engine) as url:
        done = run_here("chat", url=url, stdin=b"hi\nmore\n")
    assert "failed inside the server" in failure_line(done)
    assert (done.returncode, len(engine.requests)) == (1, 1)


@dataclass
class Terminal:
    """The keyboard and screen of a process."""

    descriptor: int
    process: subprocess.Popen[bytes]
    seen: str = ""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str) -> str:
        """What was shown up to and with `text`; it is not seen again."""
        deadline = time.monotonic() + _PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} is not shown, but {self.seen!r}"
            if select.select([self.descriptor], [], [], 0.1)[0]:
                self.seen += os.read(self.descriptor, 65536).decode(errors="replace")
        shown, _, self.seen = self.seen.partition(text)
        return shown + text

    def ended_by(self, key: str) -> int:
        """Its exit status, once the key was pressed. A signal that comes between readline's prompt and its wait for
        keys is seen with the next one (so CPython's readline), so that the key is pressed again, as people do."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self.type(key)
            try:
                return self.process.wait(1.0)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError(f"{key!r} does not end it")


@contextmanager
def terminal(*arguments: str, url: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environ(url) | {"TERM": "dumb"}, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=_own_terminal,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _own_terminal() -> None:
    """Makes stdin the terminal whose Ctrl-C this process gets."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))


def hanging_on(word: str) -> FakeEngine:
    """An engine that says one token and stops where the last message is `word`."""

    def script(request: GenerationRequest) -> Iterable[Step]:
        yield Emission("a", tokens(TEXT, "a"), None)
        if prompts(engine)[-1].endswith(f"<user>{word}<assistant>"):
            yield asyncio.Event()
        yield Emission("b", tokens(TEXT, "b"), "stop")

    engine = FakeEngine(script)
    return engine


def test_at_a_terminal_ctrl_c_ends_the_answer_and_then_the_chat():
    engine = hanging_on("hang")
    with live(engine) as url, terminal("chat", "--quiet", url=url) as screen:
        screen.until("> ")
        screen.type("hang\n")
        screen.until("hang\r\na")
        screen.type("\x03")
        screen.until("interrupted, and forgotten")
        nothing_open(engine)
        screen.until("> ")
        screen.type("go\n")
        screen.until("ab\r\n")
        screen.until("> ")
        assert screen.ended_by("\x03") == 130
    assert prompts(engine) == ["<user>hang<assistant>", "<user>go<assistant>"]


def test_at_a_terminal_a_failed_turn_is_forgotten_and_history_brings_it_back():
    engine = FakeEngine(says("ab"))
    with live(engine) as url, terminal("chat", "--quiet", url=url) as screen:
        screen.until("> ")
        engine.units["verifier"] = False
        screen.type("héllo\n")
        screen.until("hetspec: ")
        engine.units["verifier"] = True
        screen.until("> ")
        screen.type("\x1b[A\n")  # arrow up
        screen.until("ab\r\n")
        screen.until("> ")
        screen.type("\x04")
        assert screen.process.wait(_PATIENCE_S) == 0
    assert prompts(engine) == ["<user>héllo<assistant>"]


def test_a_terminal_is_spared_control_characters():
    with live(FakeEngine(says("a\x1b[31mb\x9bc"))) as url, terminal("generate", "hi", "--quiet", url=url) as screen:
        assert screen.until("c") == "a\ufffd[31mb\ufffdc"
