"""What a client of the HTTP API may rely on, apart from streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from hetspec.decoding.sampling import Sampling
from orchestrator.api.schemas import ChatBody
from orchestrator.engine.errors import DeadlineExceeded, RequestFailed, UnitsUnavailable
from orchestrator.engine.request import Mode
from tests.contract.fake_engine import FakeEngine, says

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hi"}]}


async def refused(connect: Any, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    engine = FakeEngine(says("never"))
    async with connect(engine) as client:
        content = json.dumps(body).encode()  # in ASCII: a lone surrogate can be written
        answer = await client.post(path, content=content, headers={"content-type": "application/json"})
    assert engine.requests == []
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error


async def test_chat_answer_has_openais_shape(connect):
    async with connect(FakeEngine(says("Hel", "lo", finish="length"))) as client:
        answer = (await client.post(CHAT, json=HELLO | {"seed": 7})).json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "fake-model"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    prompt = len("<user>hi<assistant>")
    assert answer["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 5,
        "total_tokens": prompt + 5,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert answer["system_fingerprint"].startswith("fp_")


async def test_answer_carries_statistics(connect):
    async with connect(FakeEngine(says("x"))) as client:
        answer = (await client.post(CHAT, json=HELLO | {"seed": -3, "hetspec": {"mode": "chain"}})).json()
    assert answer["hetspec"] == {
        "mode": "chain",
        "drafting": "fixed",
        "clock": "host",
        "rounds": 3,
        "drafted": 9,
        "verified": 9,
        "pruned": 0,
        "accepted": 6,
        "emitted": 9,
        "cached_tokens": 2,
        "accept_length": 3.0,
        "drafted_by_depth": [5, 4],
        "accepted_by_depth": [4, 2],
        "drafted_by_source": {"model": 9},
        "accepted_by_source": {"model": 6},
        "host_ns": {"verifier": 1000, "sampler": 200},
        "seed": -3,
    }


async def test_completion_answer_has_openais_shape(connect):
    async with connect(FakeEngine(says(" there"))) as client:
        answer = (await client.post(COMPLETIONS, json={"prompt": "hi"})).json()
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["choices"] == [{"index": 0, "text": " there", "logprobs": None, "finish_reason": "stop"}]


async def test_every_parameter_reaches_the_engine(connect):
    engine = FakeEngine(says("x"))
    body = HELLO | {
        "max_completion_tokens": 5,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 11,
        "min_p": 0.05,
        "seed": 42,
        "stop": ["a", "b"],
        "logprobs": True,
        "top_logprobs": 2,
        "hetspec": {"mode": "plain", "max_nodes": 9, "max_depth": 3, "min_gain": 0.25},
    }
    async with connect(engine) as client:
        assert (await client.post(CHAT, json=body)).status_code == 200
    (request,) = engine.requests
    assert request.sampling == Sampling(0.7, 11, 0.9, 0.05)
    assert (request.noise.seed, request.max_tokens, request.stop, request.top_logprobs) == (42, 5, ("a", "b"), 2)
    assert (request.mode, request.max_nodes, request.max_depth, request.min_gain) == (Mode.PLAIN, 9, 3, 0.25)
    assert bytes(engine.text.vocabulary.token_bytes(i)[0] for i in request.prompt_ids) == b"<user>hi<assistant>"


async def test_defaults_are_openais(connect):
    engine = FakeEngine(says("x"))
    async with connect(engine) as client:
        await client.post(CHAT, json=HELLO)
        await client.post(COMPLETIONS, json={"prompt": "hi"})
        await client.post(COMPLETIONS, json={"prompt": "x" * 250})
    chat, completion, long = engine.requests
    assert chat.sampling == Sampling(temperature=1.0)
    assert chat.max_tokens == 256 - len(chat.prompt_ids)
    assert completion.max_tokens == 16
    assert long.max_tokens == 6


async def test_min_gain_of_a_request_goes_before_the_servers(connect):
    engine = FakeEngine(says("x"))
    async with connect(engine, mode="tree", min_gain=0.2) as client:
        for options in ({}, {"min_gain": None}, {"min_gain": 0}, {"min_gain": 1}):
            assert (await client.post(CHAT, json=HELLO | {"hetspec": options})).status_code == 200
    assert [request.min_gain for request in engine.requests] == [0.2, 0.2, 0, 1]


async def test_levers_parts_and_objective_reach_the_engine_and_its_costs_alone_bound_the_tree(connect):
    engine = FakeEngine(says("x"))
    options = (
        {},
        {"disable": ["early_exit", "no_draft"], "objective": "energy", "max_nodes": 7, "min_gain": 0.1},
        {"mode": "lever", "disable": ["cost_tree"]},
    )
    async with connect(engine, mode="lever", min_gain=0.2) as client:
        for each in options:
            assert (await client.post(CHAT, json=HELLO | {"hetspec": each})).status_code == 200
    assert {request.mode for request in engine.requests} == {Mode.LEVER}
    bounds = [(request.max_nodes, request.max_depth, request.min_gain) for request in engine.requests]
    assert bounds == [(255, 16, 0.0), (7, 16, 0.1), (32, 5, 0.2)]
    assert [set(request.disabled) for request in engine.requests] == [set(), {"early_exit", "no_draft"}, {"cost_tree"}]
    assert [request.objective for request in engine.requests] == ["latency", "energy", "latency"]


async def test_the_asynchronous_modes_take_an_objective(connect):
    engine = FakeEngine(says("x"))
    options = ({"mode": "ahasd"}, {"mode": "full", "disable": ["cost_tree"]}, {"mode": "full", "disable": ["edc"]})
    async with connect(engine) as client:
        for each in options:
            asked = {"hetspec": each | {"objective": "energy"}}
            assert (await client.post(CHAT, json=HELLO | asked)).status_code == 200
    assert [request.objective for request in engine.requests] == ["energy"] * len(options)


async def test_an_algorithm_that_may_end_chains_early_gets_longer_ones_unless_the_request_bounds_them(connect):
    engine = FakeEngine(says("x"))
    options = ({}, {"drafting": "fixed"}, {"drafting": "adaedl"}, {"drafting": "banditspec_exp3", "max_depth": 3})
    async with connect(engine, mode="chain") as client:
        for each in options:
            assert (await client.post(CHAT, json=HELLO | {"hetspec": each})).status_code == 200
    assert [request.drafting for request in engine.requests] == ["fixed", "fixed", "adaedl", "banditspec_exp3"]
    assert [request.max_depth for request in engine.requests] == [5, 5, 16, 3]


async def test_what_control_learns_with_is_the_requests_choice(connect):
    engine = FakeEngine(says("x"))
    options = ({}, {"edc": "shared"}, {"tvc": "fitted", "outcomes": 4}, {"edc": "session", "tvc": "tables"})
    async with connect(engine, mode="ahasd") as client:
        for each in options:
            assert (await client.post(CHAT, json=HELLO | {"hetspec": each})).status_code == 200
    assert [request.shares_edc for request in engine.requests] == [False, True, False, False]
    assert [request.fits_tvc for request in engine.requests] == [False, False, True, False]
    assert [request.outcomes for request in engine.requests] == [1, 1, 4, 1]


async def test_an_algorithm_for_chains_is_refused_where_none_are_drafted(connect):
    async with connect(FakeEngine(says("x")), mode="lever") as client:
        answer = await client.post(CHAT, json=HELLO | {"hetspec": {"drafting": "svip"}})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "hetspec.drafting")
    assert error["message"] == "hetspec.drafting: is for modes chain and ahasd; this is mode lever"


async def test_specdecpp_is_refused_where_no_drafter_has_an_acceptance_head(connect):
    engine = FakeEngine(says("x"))
    body = HELLO | {"hetspec": {"mode": "chain", "drafting": "specdecpp"}}
    async with connect(engine) as client:
        refused = await client.post(CHAT, json=body)
        engine.judges_acceptance = True
        assert (await client.post(CHAT, json=body)).status_code == 200
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "hetspec.drafting")
    assert error["message"] == "hetspec.drafting: specdecpp needs an acceptance head, and no drafter here has one"


async def test_a_part_that_the_mode_lacks_is_refused_by_name(connect):
    async with connect(FakeEngine(says("x"))) as client:
        answer = await client.post(CHAT, json=HELLO | {"hetspec": {"mode": "tree", "disable": ["no_draft"]}})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "hetspec.disable")
    assert error["message"] == "hetspec.disable: mode tree has no no_draft that could be disabled"


async def test_drawn_seed_is_returned_and_used(connect):
    engine = FakeEngine(says("x"))
    async with connect(engine) as client:
        seeds = [(await client.post(CHAT, json=HELLO)).json()["hetspec"]["seed"] for _ in range(2)]
    assert [request.noise.seed for request in engine.requests] == seeds
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**63 for seed in seeds)


async def test_token_ids_are_a_prompt(connect):
    engine = FakeEngine(says("x"))
    async with connect(engine) as client:
        await client.post(COMPLETIONS, json={"prompt": [3, 1, 256]})
    assert engine.requests[0].prompt_ids == (3, 1, 256)


async def test_text_parts_are_joined(connect):
    engine = FakeEngine(says("x"))
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    async with connect(engine) as client:
        await client.post(CHAT, json=HELLO)
        await client.post(CHAT, json={"messages": [{"role": "user", "content": parts}]})
    assert engine.requests[0].prompt_ids == engine.requests[1].prompt_ids


NEUTRAL = {
    "n": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "logit_bias": {},
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "store": False,
    "metadata": {},
    "modalities": ["text"],
    "service_tier": "auto",
    "audio": None,
    "prediction": None,
    "user": "me",
    "stream": False,
    "stop": None,
    "seed": None,
    "logprobs": False,
    "model": "fake-model",
}


async def test_neutral_values_change_nothing(connect):
    engine = FakeEngine(says("x"))
    async with connect(engine) as client:
        assert (await client.post(CHAT, json=HELLO | NEUTRAL)).status_code == 200
        neutral = {"echo": False, "best_of": 1, "suffix": None, "n": None, "logprobs": None}
        assert (await client.post(COMPLETIONS, json={"prompt": "x"} | neutral)).status_code == 200


REFUSED = [
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"n": True}, "n"),
    ({"frequency_penalty": 2.1}, "frequency_penalty"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": 2.1}, "repetition_penalty"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"logit_bias": {"5": "1"}}, "logit_bias.5"),
    ({"logit_bias": {"a": 1}}, "logit_bias.a"),
    ({"logit_bias": {"05": 1}}, "logit_bias.05"),
    ({"logit_bias": {"257": 1}}, "logit_bias.257"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"),
    ({"ignore_eos": 1}, "ignore_eos"),
    ({"verbosity": "low"}, "verbosity"),
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"store": True}, "store"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 2**64}, "seed"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": ""}, "stop[0]"),
    ({"stop": ["a", 3]}, "stop[1]"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
    ({"hetspec": {"mode": "fast"}}, "hetspec.mode"),
    ({"hetspec": {"max_nodes": 256}}, "hetspec.max_nodes"),
    ({"hetspec": {"max_depth": 0}}, "hetspec.max_depth"),
    ({"hetspec": {"min_gain": -0.1}}, "hetspec.min_gain"),
    ({"hetspec": {"min_gain": 1.1}}, "hetspec.min_gain"),
    ({"hetspec": {"disable": ["early_exits"]}}, "hetspec.disable[0]"),
    ({"hetspec": {"disable": "early_exit"}}, "hetspec.disable"),
    ({"hetspec": {"mode": "tree", "disable": ["early_exit"]}}, "hetspec.disable"),
    ({"hetspec": {"objective": "speed"}}, "hetspec.objective"),
    ({"hetspec": {"mode": "chain", "objective": "energy"}}, "hetspec.objective"),
    ({"hetspec": {"mode": "lever", "disable": ["cost_tree"], "objective": "energy"}}, "hetspec.objective"),
    ({"hetspec": {"mode": "ahasd", "disable": ["batch_length"], "objective": "energy"}}, "hetspec.objective"),
    ({"hetspec": {"mode": "ahasd", "disable": ["look_ahead"], "objective": "energy"}}, "hetspec.objective"),
    ({"hetspec": {"mode": "tree", "drafting": "svip"}}, "hetspec.drafting"),
    ({"hetspec": {"mode": "chain", "drafting": "greedy"}}, "hetspec.drafting"),
    ({"hetspec": {"mode": "lever", "tvc": "fitted"}}, "hetspec.tvc"),
    ({"hetspec": {"mode": "ahasd", "disable": ["tvc"], "tvc": "tables"}}, "hetspec.tvc"),
    ({"hetspec": {"mode": "full", "tvc": "fit"}}, "hetspec.tvc"),
    ({"hetspec": {"mode": "full", "disable": ["edc"], "edc": "shared"}}, "hetspec.edc"),
    ({"hetspec": {"mode": "tree", "outcomes": 2}}, "hetspec.outcomes"),
    ({"hetspec": {"depth": 3}}, "hetspec.depth"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "name": "bob"}]}, "messages[0].name"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0].type",
    ),
    ({"prompt": "x"}, "prompt"),
    ({"unheard_of": 1}, "unheard_of"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_refused_field_is_named(connect, fields, param):
    status, error = await refused(connect, CHAT, HELLO | fields)
    assert (status, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert error["message"].startswith(param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": [[1], "a"]}, "prompt"),
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": ["a", "\ud800"]}, "prompt[1]"),
        ({"prompt": [[1], [2, 257]]}, "prompt[1][1]"),
        ({"prompt": ["x", "x" * 250], "max_tokens": 7}, "max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [1, 257]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": "\ud800"}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "x", "logprobs": 6}, "logprobs"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
        ({"prompt": "x", "echo": 1}, "echo"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "min_tokens": 17}, "min_tokens"),
        ({"prompt": "x", "n": 2, "best_of": 3}, "best_of"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "best_of": 2}, "best_of"),
        ({"prompt": "x", "messages": []}, "messages"),
        ({"prompt": "x", "max_completion_tokens": 3}, "max_completion_tokens"),
    ],
)
async def test_refused_completion_field_is_named(connect, fields, param):
    status, error = await refused(connect, COMPLETIONS, fields)
    assert (status, error["param"]) == (400, param)
    assert error["message"].startswith(param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"prompt": "x" * 256}, "prompt"), ({"prompt": "x" * 200, "max_tokens": 57}, "max_tokens")],
)
async def test_what_exceeds_the_context_is_refused_before_any_unit_works(connect, fields, param):
    status, error = await refused(connect, COMPLETIONS, fields)
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", param)


async def test_what_just_fits_the_context_is_served(connect):
    async with connect(FakeEngine(says("x"))) as client:
        answer = await client.post(COMPLETIONS, json={"prompt": "x" * 200, "max_tokens": 56})
    assert answer.status_code == 200


async def test_unknown_model_is_404(connect):
    status, error = await refused(connect, CHAT, HELLO | {"model": "gpt-4"})
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"messages": NaN', "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"\\ud800": 1}', "application/json", 400),
        (json.dumps(HELLO).encode(), "text/plain", 415),
        (b"a=b", "application/x-www-form-urlencoded", 415),
    ],
)
async def test_what_is_no_json_object_is_refused_in_openais_shape(connect, content, kind, status):
    async with connect(FakeEngine(says("never"))) as client:
        answer = await client.post(CHAT, content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_not_a_number_is_refused(connect):
    content = json.dumps(HELLO | {"temperature": float("nan")}).encode()
    async with connect(FakeEngine(says("never"))) as client:
        answer = await client.post(CHAT, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "temperature")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("GET", CHAT, 405), ("DELETE", "/v1/models", 405)]
)
async def test_wrong_path_or_method_is_answered_in_openais_shape(connect, method, path, status):
    async with connect(FakeEngine(says("never"))) as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (UnitsUnavailable("verifier is gone"), 503),
        (DeadlineExceeded("too late"), 504),
        (RequestFailed("three rebuilds"), 500),
        (KeyError("a bug"), 500),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_failure_before_the_first_token_is_a_status(connect, failure, status, stream):
    engine = FakeEngine(lambda _: [failure])
    async with connect(engine) as client:
        answer = await client.post(CHAT, json=HELLO | {"stream": stream})
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "server_error"
    assert "a bug" not in answer.text
    assert engine.open == 0


async def test_chat_logprobs_have_openais_shape(connect):
    async with connect(FakeEngine(says("é"))) as client:
        body = HELLO | {"logprobs": True, "top_logprobs": 1}
        logprobs = (await client.post(CHAT, json=body)).json()["choices"][0]["logprobs"]
    first, second = logprobs["content"]
    assert first["bytes"] + second["bytes"] == list("é".encode())
    assert (first["token"], first["logprob"]) == ("\ufffd", -0.5)
    assert first["top_logprobs"] == [{"token": "\ufffd", "logprob": -0.5, "bytes": first["bytes"]}]


async def test_completion_logprobs_have_openais_shape(connect):
    async with connect(FakeEngine(says("ab", "c"))) as client:
        answer = (await client.post(COMPLETIONS, json={"prompt": "x", "logprobs": 0})).json()
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [-0.5, -0.5, -0.5],
        "top_logprobs": [{"a": -0.5}, {"b": -0.5}, {"c": -0.5}],
        "text_offset": [0, 1, 2],
    }


async def test_missing_unit_makes_503_and_is_named(connect):
    engine = FakeEngine(says("never"))
    engine.units["verifier"] = False
    async with connect(engine) as client:
        assert (await client.get("/healthz")).status_code == 200
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["missing"]) == (503, ["verifier"])
        answer = await client.post(CHAT, json=HELLO)
        assert answer.status_code == 503
        assert "verifier" in answer.json()["error"]["message"]
        engine.units["verifier"] = True
        assert (await client.get("/readyz")).status_code == 200


async def test_why_nothing_can_ever_be_answered_is_told_where_readiness_is(connect):
    engine = FakeEngine(says("never"))
    async with connect(engine) as client:
        assert "problem" not in (await client.get("/readyz")).json()
        engine.problem, engine.units["verifier"] = "palm-62b does not fit", False
        told = await client.get("/readyz")
        assert (told.status_code, told.json()["problem"]) == (503, "palm-62b does not fit")


async def test_models_lists_the_checkpoint(connect):
    async with connect(FakeEngine(says("x"))) as client:
        (model,) = (await client.get("/v1/models")).json()["data"]
    assert (model["id"], model["object"]) == ("fake-model", "model")


async def test_fingerprint_changes_with_weights_precision_and_digests(connect):
    seen = set()
    for change in ({}, {"fingerprint": "other"}, {"precision": "float32"}, {"digests": {"verifier": "w"}}):
        engine = FakeEngine(says("x"))
        for name, value in change.items():
            setattr(engine.description, name, value)
        async with connect(engine) as client:
            seen.add((await client.post(CHAT, json=HELLO)).json()["system_fingerprint"])
    assert len(seen) == 4


async def test_metrics_count_what_was_answered(connect):
    async with connect(FakeEngine(says("abc"))) as client:
        await client.post(CHAT, json=HELLO | {"hetspec": {"mode": "tree"}})
        await client.post(CHAT, json=HELLO | {"n": 0})
        text = (await client.get("/metrics")).text
    samples = {
        (s.name, *sorted(s.labels.values())): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["hetspec_requests_total", "chat", "stop", "tree"] == 1
    assert samples["hetspec_generated_tokens_total", "tree"] == 3
    assert samples["hetspec_accepted_tokens_total", "tree"] == 6
    assert samples["hetspec_time_to_first_token_seconds_count", "chat", "tree"] == 1
    assert samples["hetspec_refusals_total", "400", "invalid_request"] == 1
    assert samples[("hetspec_requests_running",)] == 0


async def test_openapi_document_describes_both_endpoints(connect):
    async with connect(FakeEngine(says("x"))) as client:
        document = (await client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert {CHAT, COMPLETIONS} <= set(document["paths"])
    assert schemas["ChatBody"]["additionalProperties"] is False
    assert schemas["ChatBody"]["properties"]["store"]["enum"] == [None, False]
    assert {"type": "string"} in schemas["Message"]["properties"]["content"]["anyOf"]


@pytest.mark.parametrize("seed", ["1" * 5000, "1e400", "-0.0", "Infinity"])
async def test_number_that_is_no_seed_is_refused(connect, seed):
    content = f'{{"messages": [{{"role": "user", "content": "hi"}}], "seed": {seed}}}'
    async with connect(FakeEngine(says("never"))) as client:
        answer = await client.post(CHAT, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@settings(max_examples=200)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
                max_leaves=4,
            )
            for name in (*ChatBody.model_fields, "unheard_of")
        },
    )
)
def test_no_body_breaks_the_server_and_every_refusal_names_a_field_of_it(fields):
    body = HELLO | fields
    try:
        ChatBody.model_validate(body)
    except ValidationError as refused:
        error = refused.errors()[0]
        named = error["ctx"]["field"] if error["type"] == "fields_disagree" else error["loc"][0]
        assert named in body


async def test_a_body_too_long_is_refused_whether_its_length_is_declared_or_not(connect):
    async def in_parts():
        for _ in range(9):
            yield b" " * 1000

    async with connect(FakeEngine(says("x")), max_body_bytes=8000) as client:
        declared = await client.post(CHAT, content=b" " * 9000, headers={"content-type": "application/json"})
        streamed = await client.post(CHAT, content=in_parts(), headers={"content-type": "application/json"})
    for answer in (declared, streamed):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(connect):
    async with connect(FakeEngine(says("x")), max_body_bytes=1 << 26) as client:
        answer = await client.post(COMPLETIONS, json={"prompt": "ab " * 4_000_000})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "prompt", "context_length_exceeded")
    assert "characters" in error["message"]


@pytest.mark.parametrize("content", [b'{"messages": "\xff"}', b"[" * 100_000, b'{"seed": ' + b"9" * 5000 + b"}"])
async def test_a_body_that_no_reader_takes_is_invalid_json(connect, content):
    async with connect(FakeEngine(says("x"))) as client:
        answer = await client.post(CHAT, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


async def test_a_model_can_be_asked_for_by_name(connect):
    async with connect(FakeEngine(says("x"))) as client:
        listed = (await client.get("/v1/models")).json()["data"][0]
        assert (await client.get(f"/v1/models/{listed['id']}")).json() == listed
        unknown = await client.get("/v1/models/another")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_drawn_seed_survives_a_reader_of_doubles(connect):
    async with connect(FakeEngine(says("x"))) as client:
        answers = [(await client.post(CHAT, json=HELLO)).json() for _ in range(8)]
    seeds = [answer["hetspec"]["seed"] for answer in answers]
    assert all(int(float(seed)) == seed for seed in seeds)
