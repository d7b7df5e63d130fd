"""hetspec generate"""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest

from hetspec_client import Client
from orchestrator.engine.request import Emission, GenerationRequest
from tests.clients.command import COMMAND, environ, failure_line, hetspec, hetspec_process
from tests.clients.servers import HOST, events, live, nothing_open, prompts, raw, response
from tests.contract.fake_engine import FakeEngine, Step, byte_level_text, says, tokens

TEXT = byte_level_text()
PIECES = ("né", "\r\n\n", "data: x\u2028", "", "🙂", "漢字")
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("way", [(), ("--raw",)])
def test_what_is_printed_is_the_answer_and_a_line_feed(way):
    with live(FakeEngine(says(*PIECES))) as url:
        done = hetspec("generate", "hi", *way, url=url)
    assert (done.returncode, done.stdout.decode()) == (0, "".join(PIECES) + "\n")


def test_statistics_are_one_line_on_stderr_and_none_when_quiet():
    with live(FakeEngine(says(*PIECES))) as url:
        told = hetspec("generate", "hi", "--seed", "7", "--mode", "chain", url=url).stderr.decode()
        quiet = hetspec("generate", "hi", "--quiet", url=url).stderr
    assert quiet == b""
    assert told.count("\n") == 1
    assert "mode chain, 3 rounds of 3.00, 6 of 9 drafted accepted, 2 prompt tokens cached, seed 7" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("way", [(), ("--raw",)])
def test_json_is_what_the_sdk_gets(way):
    with live(FakeEngine(says(*PIECES))) as url, Client(url) as client:
        done = hetspec("generate", "hi", *way, "--json", "--seed", "7", "--logprobs", "2", url=url)
        if way:
            expected = client.complete("hi", seed=7, logprobs=2)
        else:
            expected = client.chat(HI, seed=7, logprobs=True, top_logprobs=2)
    assert (done.returncode, done.stderr) == (0, b"")
    told = json.loads(done.stdout)
    assert told.keys() == expected.raw.keys()
    assert told | {"id": 0, "created": 0} == expected.raw | {"id": 0, "created": 0}


def test_prompt_comes_from_argument_file_or_stdin(run_here, tmp_path):
    file = tmp_path / "prompt"
    file.write_text("né\n")
    engine = FakeEngine(says("a"))
    with live(engine) as url:
        run_here("generate", "--raw", "né\n", url=url)
        run_here("generate", "--raw", "--file", str(file), url=url)
        run_here("generate", "--raw", "-f", "-", url=url, stdin=file.read_bytes())
        run_here("generate", "--raw", url=url, stdin=file.read_bytes())
        run_here("generate", "x", "--system", "be brief", url=url)
    assert prompts(engine) == ["né\n"] * 4 + ["<system>be brief<user>x<assistant>"]


def test_every_option_is_sent_as_the_api_names_it(run_here, tmp_path):
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar"
    schema.write_text('{"type": "object"}')
    grammar.write_text("root ::= 'a'")
    numbers = {"max-tokens": 5, "min-tokens": 2, "temperature": 0.5, "top-p": 0.9, "top-k": 3, "min-p": 0.1, "seed": 9}
    numbers |= {"frequency-penalty": 1.5, "presence-penalty": -1.0, "repetition-penalty": 1.1, "timeout": 30.0, "n": 1}
    given = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    given += ["--ignore-eos", "--stop", "x", "--stop", "y", "--logit-bias", "42=-100", "--logit-bias", "7=1.5"]
    given += ["--model", "m", "--mode", "tree", "--max-nodes", "8", "--max-depth", "4", "--min-gain", "0.1"]
    given += ["--no-prefix-cache", "--disable", "early_exit", "--disable", "no_draft", "--objective", "energy"]
    given += ["--drafting", "svip", "--outcomes", "4", "--edc", "shared", "--tvc", "fitted"]
    with raw(events()) as server:
        run_here("generate", "hi", *given, "--json-schema", str(schema), "--regex", "a+", url=server.url)
        run_here("generate", "hi", "--raw", "--echo", "--grammar", str(grammar), url=server.url)
        run_here("generate", "hi", "--response-format", "json_object", "--json", url=server.url)
    first, second, third = map(json.loads, server.requests)
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    response_format = {"type": "json_schema", "json_schema": {
        "name": "answer", "schema": {"type": "object"}, "strict": True}}  # fmt: skip
    expected: dict[str, Any] = {name.replace("-", "_"): value for name, value in numbers.items()}
    assert first == expected | streaming | {
        "messages": HI, "model": "m", "ignore_eos": True, "stop": ["x", "y"], "logit_bias": {"42": -100.0, "7": 1.5},
        "response_format": response_format,
        "hetspec": {
            "mode": "tree", "max_nodes": 8, "max_depth": 4, "min_gain": 0.1, "regex": "a+", "prefix_cache": False,
            "disable": ["early_exit", "no_draft"], "objective": "energy", "drafting": "svip",
            "outcomes": 4, "edc": "shared", "tvc": "fitted",
        },
    }  # fmt: skip
    assert second == {"prompt": "hi", "echo": True, "hetspec": {"grammar": "root ::= 'a'"}} | streaming
    assert third == {"messages": HI, "response_format": {"type": "json_object"}}


class Gated:
    """Says one token, and the rest when the gate opens."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, request: GenerationRequest) -> Iterable[Step]:
        self.loop = asyncio.get_running_loop()
        yield Emission("é", tokens(TEXT, "é"), None)
        yield self.gate
        yield Emission("b", tokens(TEXT, "b"), "stop")

    def open(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.gate.set)


def read(process: subprocess.Popen[bytes], count: int) -> bytes:
    assert process.stdout is not None
    return process.stdout.read(count)


def test_tokens_are_printed_as_they_come():
    script = Gated()
    with live(FakeEngine(script)) as url, hetspec_process("generate", "hi", url=url) as process:
        assert read(process, 2) == "é".encode()
        script.open()
        assert process.communicate(timeout=60)[0] == b"b\n"
    assert process.returncode == 0


def test_ctrl_c_ends_the_request_and_exits_with_130():
    engine = FakeEngine(Gated())
    with live(engine) as url, hetspec_process("generate", "hi", url=url) as process:
        assert read(process, 2) == "é".encode()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (130, b"")
        nothing_open(engine)


def test_closed_output_ends_the_request_in_one_line():
    script = Gated()
    engine = FakeEngine(script)
    with live(engine) as url, hetspec_process("generate", "hi", url=url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert read(process, 2) == "é".encode()
        process.stdout.close()
        script.open()
        told = process.stderr.read()
        assert process.wait(timeout=60) == 1
        nothing_open(engine)
    assert told == b"hetspec: the output cannot be written: Broken pipe\n"


@pytest.mark.parametrize(("closed", "told"), [("<&-", ""), (">&-", "it is closed"), ("2>&-", "")])
def test_closed_streams_are_no_traceback(closed, told):
    with live(FakeEngine(says("a"))) as url:
        command = shlex.join([*COMMAND, "generate", "hi", "--quiet"])
        done = subprocess.run(
            f"exec {command} {closed}", shell=True, env=environ(url), capture_output=True, check=False
        )
    if told:
        assert told in failure_line(done)
    assert (done.returncode, done.stdout) == ((1, b"") if told else (0, b"a\n"))


def test_several_answers_are_set_apart(run_here):
    choices = [{"index": i, "message": {"content": text}, "finish_reason": "stop"} for i, text in [(1, "b"), (0, "a")]]
    told = {"id": "1", "model": "m", "choices": choices}
    with raw(response(json.dumps(told).encode())) as server:
        done = run_here("generate", "hi", "--n", "2", url=server.url)
    assert (done.returncode, done.stdout) == (0, b"a\n---\nb\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["hi", "--seed", "x"], "--seed"),
        (["hi", "--temperature", "3"], "temperature: "),
        (["--file", "/no/such/file"], "/no/such/file: No such file"),
        ([], "stdin: not UTF-8 at byte 2"),
    ],
)
def test_process_fails_with_one_line(arguments, told):
    with live(FakeEngine(says("a"))) as url:
        done = hetspec("generate", *arguments, url=url, stdin=b"ab\xff")
    assert told in failure_line(done)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["hi", "--bad"], b"", "No such option"),
        (["hi", "--seed", "x"], b"", "--seed"),
        (["hi", "there"], b"", "unexpected extra argument"),
        (["hi", "--file", "f"], b"", "not both"),
        (["hi", "--logprobs", "2"], b"", "--json"),
        (["hi", "--raw", "--system", "s"], b"", "--system"),
        (["hi", "--echo"], b"", "--raw"),
        (["hi", "--logit-bias", "x"], b"", "ID=BIAS"),
        (["hi", "--json-schema", "/dev/null"], b"", "not JSON"),
        (["hi", "--json-schema", "/dev/null", "--response-format", "text"], b"", "exclude"),
        (["--file", "/no/such/file"], b"", "/no/such/file: No such file"),
        (["--file", "/"], b"", "directory"),
        ([], b"ab\xff", "stdin: not UTF-8 at byte 2"),
        (["hi", "--url", "nowhere"], b"", "url = 'nowhere'"),
        (["hi", "--api-key", ""], b"", "api_key"),
        (["hi", "--temperature", "3"], b"", "temperature: "),
        (["hi", "--temperature", "nan"], b"", "JSON"),
        (["hi", "--model", "gpt-4"], b"", "gpt-4"),
        (["hi", "--max-tokens", "1000"], b"", "max_tokens: "),
    ],
)
def test_wrong_asking_is_one_line_and_exit_code_2(run_here, arguments, stdin, told):
    with live(FakeEngine(says("a"))) as url:
        done = run_here("generate", *arguments, url=url, stdin=stdin)
    assert told in failure_line(done)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("way", [(), ("--json",)])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (response(b"<html>\n</html>", "text/html", "502 Bad Gateway"), "502"),
        (response(b'{"error": {"message": "a\\nb\\u001b[31m", "code": "x"}}', status="500 E"), "a b\ufffd[31m"),
        (response(b"<html>"), ""),
        (b"", "connection"),
        (b"nonsense", "connection"),
    ],
)
def test_failing_server_is_one_line_and_exit_code_1(run_here, answer, told, way):
    with raw(answer) as server:
        done = run_here("generate", "hi", *way, url=server.url)
    assert told in failure_line(done)
    assert (done.returncode, done.stdout) == (1, b"")


def test_server_that_is_down_is_one_line_and_exit_code_1():
    with socket.create_server((HOST, 0)) as holder:
        port = holder.getsockname()[1]
    done = hetspec("generate", "hi", url=f"http://{HOST}:{port}")
    assert failure_line(done).startswith(f"cannot connect to http://{HOST}:{port}: ")
    assert done.returncode == 1


def test_stream_that_breaks_is_a_failure_after_what_came(run_here):
    chunk = {"id": "1", "model": "m", "object": "chat.completion.chunk"}
    chunk |= {"choices": [{"index": 0, "delta": {"content": "half an"}, "finish_reason": None}]}
    with raw(events(json.dumps(chunk))) as server:
        done = run_here("generate", "hi", url=server.url)
    assert "the stream broke off" in failure_line(done)
    assert (done.returncode, done.stdout) == (1, b"half an")


def test_failure_inside_a_stream_is_one_line_and_exit_code_1(run_here):
    engine = FakeEngine(lambda _: [Emission("a", (), None), KeyError("a bug")])
    with live(engine) as url:
        done = run_here("generate", "hi", url=url)
    assert "failed inside the server" in failure_line(done)
    assert (done.returncode, done.stdout) == (1, b"a")


def test_missing_unit_is_one_line_and_exit_code_1(run_here):
    engine = FakeEngine(says("a"))
    engine.units["verifier"] = False
    with live(engine) as url:
        done = run_here("generate", "hi", url=url)
    assert "verifier" in failure_line(done)
    assert done.returncode == 1
