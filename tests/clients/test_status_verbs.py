"""hetspec models, hetspec stats"""

from __future__ import annotations

import json

from tests.clients.command import failure_line, hetspec
from tests.clients.servers import live, raw, response
from tests.contract.fake_engine import FakeEngine, says


def test_models_are_listed(run_here):
    with live(FakeEngine(says("a"))) as url:
        assert run_here("models", url=url).stdout == b"model       context\nfake-model  256\n"
        (model,) = json.loads(run_here("models", "--json", url=url).stdout)
    assert (model["id"], model["max_model_len"]) == ("fake-model", 256)


def test_wide_names_keep_the_columns_straight(run_here):
    models = {"data": [{"id": "模型", "max_model_len": 1}, {"id": "ab", "max_model_len": None}]}
    with raw(response(json.dumps(models).encode())) as server:
        told = run_here("models", url=server.url).stdout.decode()
    assert told == "model  context\n模型   1\nab\n"


def test_stats_count_what_was_asked(run_here):
    with live(FakeEngine(says("hello"))) as url:
        for mode in ("chain", "chain", "plain"):
            run_here("generate", "hi", "--mode", mode, url=url)
        run_here("generate", "hi", "--temperature", "3", url=url)
        told = json.loads(run_here("stats", "--json", url=url).stdout)
        shown = run_here("stats", url=url).stdout.decode()
    assert (told["status"], told["running"], told["queued"]) == ("ready", 0, 0)
    assert (told["ended"], told["refused"]) == ({"stop": 3}, {"400": 1})
    assert told["prompt_tokens"] == 3 * len("<user>hi<assistant>")
    chain = {"rounds": 6, "drafted": 18, "verified": 18, "pruned": 0, "accepted": 12, "emitted": 10}
    chain["accept_length"] = 10 / 6
    assert told["modes"]["chain"] == chain
    assert told["modes"]["plain"]["rounds"] == 3
    # Each of the three answers says that 5 of its nodes were drafted at depth 1 and 4 below, all by the model.
    assert told["by_depth"] == {"1": {"drafted": 15, "accepted": 12}, "2": {"drafted": 12, "accepted": 6}}
    assert told["by_source"] == {"model": {"drafted": 27, "accepted": 18}}
    rows = [line.split() for line in shown.splitlines()]
    assert ["chain", "6", "18", "18", "0", "12", "10", "1.67"] in rows
    assert ["ended", "stop", "3"] in rows
    assert ["1", "15", "12", "80.0%"] in rows
    assert ["model", "27", "18", "66.7%"] in rows


def test_stats_of_a_server_that_waits_say_for_what(run_here):
    engine = FakeEngine(says("a"))
    engine.units["sampler"] = False
    with live(engine) as url:
        done = run_here("stats", url=url)
    assert (done.returncode, done.stdout.decode().splitlines()[0].split()) == (
        0, ["status", "waiting,", "without", "sampler"])  # fmt: skip


def test_what_is_no_hetspec_server_is_one_line(run_here):
    with raw(response(b"<html>", "text/html")) as server:
        for verb in ("models", "stats"):
            done = run_here(verb, url=server.url)
            assert "not JSON" in failure_line(done)
            assert done.returncode == 1


def test_without_a_verb_the_help_is_shown():
    done = hetspec()
    assert done.returncode == 0
    assert all(verb in done.stdout.decode() for verb in ("generate", "chat", "models", "stats"))


def test_unknown_verb_is_one_line_and_exit_code_2():
    done = hetspec("generat")
    assert "generate" in failure_line(done)
    assert done.returncode == 2


def test_tokenize_shows_the_ids_that_a_raw_prompt_has(run_here):
    engine = FakeEngine(says("a"))
    with live(engine) as url:
        shown = run_here("tokenize", "né", url=url).stdout
        told = json.loads(run_here("tokenize", "--json", url=url, stdin="né".encode()).stdout)
        run_here("generate", "--raw", "né", url=url)
        assert shown.split() == [b"%d" % token for token in engine.requests[-1].prompt_ids]
        assert told["tokens"] == list(engine.requests[-1].prompt_ids)
        assert told["count"] == len(told["token_strs"]) == 3
