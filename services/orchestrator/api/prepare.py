"""From a checked body to the engine's requests, one a choice: model, room in the context, seed. No unit is asked."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from hetspec.decoding.sampling import NoiseKey
from orchestrator.api.errors import ApiError, invalid
from orchestrator.api.prompts import Prompt, chat_prompt, completion_prompts
from orchestrator.api.request_log import request_id
from orchestrator.api.response_format import check_grammar
from orchestrator.api.sampling import sampling_of
from orchestrator.api.schemas import ChatBody, CompletionBody, GenerationBody, HetspecOptions
from orchestrator.api.speculation import speculation_of
from orchestrator.api.token_limit import TokenLimit
from orchestrator.clock.clock import Arrival
from orchestrator.engine.engine import Engine, EngineDescription
from orchestrator.engine.errors import UnitsUnavailable
from orchestrator.engine.request import GenerationRequest, Mode
from orchestrator.policies.drafting_algorithm import Drafting

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
SEED_BITS = 53  # of a seed that is drawn: every JSON reader gives it back whole


@dataclass(frozen=True, slots=True)
class Defaults:
    """Of requests that do not say it. timeout_s: no request may say more."""

    mode: Mode
    min_gain: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """requests: n choices of the first prompt, then of the next. seed: as the client wrote it, or drawn."""

    prompts: tuple[Prompt, ...]
    requests: tuple[GenerationRequest, ...]
    seed: int

    @property
    def choices_a_prompt(self) -> int:
        return len(self.requests) // len(self.prompts)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt.ids) for prompt in self.prompts)


async def prepare_chat(body: ChatBody, engine: Engine, defaults: Defaults) -> Prepared:
    check_units(engine)
    check_model(body.model, engine.description)
    prompt = await chat_prompt([message.plain for message in body.messages], engine)
    limit = TokenLimit("max_tokens", body.max_tokens, default=None)
    if body.max_completion_tokens is not None:
        limit = TokenLimit("max_completion_tokens", body.max_completion_tokens, default=None)
    top_logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return await _prepared(body, [prompt], limit, _Logprobs(top_logprobs), engine, defaults)


async def prepare_completion(body: CompletionBody, engine: Engine, defaults: Defaults) -> Prepared:
    check_units(engine)
    check_model(body.model, engine.description)
    prompts = await completion_prompts(body.prompt, engine)
    limit = TokenLimit("max_tokens", body.max_tokens, default=DEFAULT_COMPLETION_TOKENS)
    return await _prepared(body, prompts, limit, _Logprobs(body.logprobs, of_prompt=bool(body.echo)), engine, defaults)


def check_units(engine: Engine) -> None:
    if missing := missing_units(engine):
        raise UnitsUnavailable(f"not ready: {', '.join(missing)}")


def missing_units(engine: Engine) -> list[str]:
    return [unit for unit, ready in engine.ready().items() if not ready]


def check_model(name: str | None, description: EngineDescription) -> None:
    if name not in (None, "default", description.model):
        message = f"model {name!r} is not served here: this server serves {description.model!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


@dataclass(frozen=True, slots=True)
class _Logprobs:
    """top: None asks for none. of_prompt: of the prompt's tokens too."""

    top: int | None
    of_prompt: bool = False


async def _prepared(
    body: GenerationBody,
    prompts: Sequence[Prompt],
    limit: TokenLimit,
    logprobs: _Logprobs,
    engine: Engine,
    defaults: Defaults,
) -> Prepared:
    options = body.hetspec or HetspecOptions()
    speculation = speculation_of(options, defaults.mode, defaults.min_gain)
    if speculation.drafting is Drafting.SPECDECPP and not engine.judges_acceptance:
        reason = "specdecpp needs an acceptance head, and no drafter here has one"
        raise invalid("hetspec.drafting", f"hetspec.drafting: {reason}")
    sampling = sampling_of(body, engine.text.vocabulary)
    seed = secrets.randbits(SEED_BITS) if body.seed is None else body.seed
    deadline = asyncio.get_running_loop().time() + _timeout_s(body, defaults)
    if (named := body.grammar) is not None:
        await check_grammar(named, engine)
    requests = [
        GenerationRequest(
            request_id=request_id(),
            prompt_ids=prompt.ids,
            sampling=sampling,
            noise=NoiseKey(seed, prompt_index, choice_index),
            max_tokens=_checked_max_tokens(body, limit.tokens(prompt, engine.description)),
            mode=speculation.mode,
            max_nodes=speculation.max_nodes,
            max_depth=speculation.max_depth,
            stop=tuple(body.stop or ()),
            min_tokens=body.min_tokens or 0,
            ignore_eos=bool(body.ignore_eos),
            grammar=named.grammar if named else None,
            top_logprobs=logprobs.top,
            scores_prompt=logprobs.of_prompt and logprobs.top is not None,
            min_gain=speculation.min_gain,
            reuse_prefix=options.prefix_cache is not False,
            deadline=deadline,
            arrival=_arrival(options, engine),
            objective=speculation.objective,
            disabled=speculation.disabled,
            drafting=speculation.drafting,
            outcomes=speculation.outcomes,
            shares_edc=speculation.shares_edc,
            fits_tvc=speculation.fits_tvc,
        )
        for prompt_index, prompt in enumerate(prompts)
        for choice_index in range(body.n or 1)
    ]
    return Prepared(tuple(prompts), tuple(requests), seed)


def _arrival(options: HetspecOptions, engine: Engine) -> Arrival | None:
    for field in ("arrival_ns", "sessions"):
        if getattr(options, field) is not None and engine.world is None:
            raise invalid(f"hetspec.{field}", f"hetspec.{field}: may only be given under an emulated clock")
    if options.arrival_ns is None and options.sessions is None:
        return None
    return Arrival(options.arrival_ns or 0, options.sessions or 1)


def _timeout_s(body: GenerationBody, defaults: Defaults) -> float:
    if body.timeout is None:
        return defaults.timeout_s
    if body.timeout > defaults.timeout_s:
        most = f"this server allows at most {defaults.timeout_s:g} s"
        raise invalid("timeout", f"timeout: {body.timeout:g} s, and {most}")
    return body.timeout


def _checked_max_tokens(body: GenerationBody, max_tokens: int) -> int:
    if (body.min_tokens or 0) > max_tokens:
        raise invalid("min_tokens", f"min_tokens: {body.min_tokens}, and at most {max_tokens} tokens may come")
    return max_tokens
