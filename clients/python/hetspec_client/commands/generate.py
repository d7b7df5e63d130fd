"""hetspec generate"""

from __future__ import annotations

from typing import Annotated

from typer import Option

from hetspec_client import calls
from hetspec_client.commands.output import AsJson, Quiet
from hetspec_client.commands.request import Request
from hetspec_client.commands.server import Server
from hetspec_client.commands.show import show
from hetspec_client.commands.summary import Stopwatch, summary
from hetspec_client.commands.text import File, Text, given_text
from hetspec_client.errors import InvalidInput
from hetspec_client.options import Json
from hetspec_client.terminal import note, write_json, write_line

_BETWEEN_CHOICES = "\n---\n"


def generate(
    prompt: Text = None,
    *,
    file: File = None,
    raw: Annotated[bool, Option("--raw", help="The prompt as it is: no chat template.")] = False,
    system: Annotated[str | None, Option(help="What the model is told first.")] = None,
    n: Annotated[int | None, Option("--n", "-n", help="So many answers.")] = None,
    logprobs: Annotated[int | None, Option(metavar="K", help="With K rivals of every token; needs --json.")] = None,
    echo: Annotated[bool | None, Option("--echo", help="The prompt before the answer; needs --raw.")] = None,
    request: Request,
    server: Server,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Answer one prompt."""
    _refuse(
        (logprobs is not None and not as_json, "--logprobs needs --json"),
        (raw and system is not None, "--system and --raw exclude each other"),
        (bool(echo) and not raw, "--echo needs --raw"),
    )
    streamed = not as_json and n in (None, 1)
    options = request.options() | {"n": n, "echo": echo}
    text = given_text(prompt, file)
    if raw:
        call = calls.completion(text, options | {"logprobs": logprobs}, stream=streamed)
    else:
        call = calls.chat(_messages(system, text), options | _chat_logprobs(logprobs), stream=streamed)

    watch = Stopwatch()
    with server.connect(request.timeout) as client:
        answer = show(client, call, watch) if streamed else client.answer(call)
    if as_json:
        write_json(answer.raw)
        return
    if not streamed:
        write_line(_BETWEEN_CHOICES.join(choice.text for choice in answer.choices))
    if not quiet:
        note(summary(answer, watch))


def _refuse(*contradictions: tuple[bool, str]) -> None:
    for wrong, why in contradictions:
        if wrong:
            raise InvalidInput(why)


def _messages(system: str | None, text: str) -> list[Json]:
    told = [] if system is None else [{"role": "system", "content": system}]
    return [*told, {"role": "user", "content": text}]


def _chat_logprobs(rivals: int | None) -> Json:
    return {} if rivals is None else {"logprobs": True, "top_logprobs": rivals}
