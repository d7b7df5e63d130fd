"""A mode is compared with others on the same hardware: flash reading ahead, or resting, for both."""

from __future__ import annotations

import csv

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import Described, load_profile
from laboratory.flash_policies import all_policies, rested
from laboratory.flash_report import FlashReport
from laboratory.outcome import Outcome
from laboratory.study import Pair, Studied

TOKEN_MS = {
    "plain": 800, "lever": 240, "ahasd": 400, "full": 200, "full, 4 outcomes": 160, "lever of 255 nodes": 220,
    "full of 255 nodes": 190, rested("plain"): 900, rested("lever"): 300, rested("ahasd"): 450, rested("full"): 250,
    rested("full, 4 outcomes"): 225,
}  # fmt: skip


def report() -> FlashReport:
    profile = load_profile("phone-flash-pim")
    assert isinstance(profile, Described)
    pair = Pair(profile, parse_cost_as("llama2-7b:int4"))
    studied = [
        Studied(pair, policy, (Outcome(tokens=11, decoded=10, rounds=6, total_ns=TOKEN_MS[policy.name] * 10**7),))
        for policy in all_policies()
    ]
    return FlashReport(studied, ["talk"], {(pair.name, "none"): "no room"})


def test_full_is_compared_on_the_same_hardware() -> None:
    (title, table), *_ = report().tables()
    assert title == "full over"
    assert table == [
        ("", "plain", "lever", "ahasd"),
        ("phone-flash-pim, llama2-7b:int4: full", "4.00x", "1.20x", "2.00x"),
        ("phone-flash-pim, llama2-7b:int4: full, flash rests", "3.60x", "1.20x", "1.80x"),
        ("phone-flash-pim, llama2-7b:int4: full, 4 outcomes", "5.00x", "1.50x", "2.50x"),
        ("phone-flash-pim, llama2-7b:int4: full, 4 outcomes, flash rests", "4.00x", "1.33x", "2.00x"),
    ]


def test_every_policy_has_its_row_its_line_and_its_bar() -> None:
    told = report()
    _, (_, table), (_, excluded) = told.tables()
    lines = {line["policy"]: line for line in csv.DictReader(told.csv().splitlines())}
    bars = {bar.name: bar.value for panel in told.panels() for bar in panel.bars}
    assert [row[0] for row in table[1:]] == list(lines) == list(bars) == [policy.name for policy in all_policies()]
    assert {name: float(line["ms_per_token"]) for name, line in lines.items()} == TOKEN_MS
    assert bars == {name: 800 / ms for name, ms in TOKEN_MS.items()}
    assert excluded[1][1:] == ("none", "no room")
