from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.api.account import Limits
from orchestrator.api.keys import KeyRing, parse_keys, read_keys

ONE, TWO, THREE = "sk-one-0123456789", "sk-two-0123456789", "sk-three-0123456789"


def test_entries_have_a_key_a_name_and_limits():
    text = f"# who\n{ONE} alice running=2 tokens_per_minute=5000\n\n{TWO} # the rest\n{THREE} requests_per_minute=1"
    alice, second, third = parse_keys(text.splitlines())
    assert (alice.name, alice.limits) == ("alice", Limits(running=2, tokens_per_minute=5000))
    assert (second.name, second.limits) == ("key-4", Limits())
    assert (third.name, third.limits) == ("key-5", Limits(requests_per_minute=1))


@pytest.mark.parametrize(
    "entries",
    [
        [],
        ["# only a comment"],
        ["short"],
        ["sk-äöü-0123456789abc"],
        [f"{ONE} two words"],
        [f"{ONE} na/me"],
        [f"{ONE} a running=0"],
        [f"{ONE} a running=-1"],
        [f"{ONE} a walking=1"],
        [f"{ONE} a running=1 running=2"],
        [ONE, ONE],
        [f"{ONE} a", f"{TWO} a"],
    ],
)
def test_a_bad_entry_is_refused_and_not_shown(entries):
    with pytest.raises(ValueError, match=r"entry|holds no key") as refused:
        parse_keys(entries)
    assert not any(entry.split()[0] in str(refused.value) for entry in entries)


def test_only_the_whole_key_is_found():
    keys = KeyRing(parse_keys([ONE, TWO]))
    assert keys.find(TWO) is keys.accounts[1]
    for wrong in ("", ONE[:-1], ONE + "x", ONE.upper(), "key-1", "\udcff"):
        assert keys.find(wrong) is None


def test_no_key_is_kept():
    keys = KeyRing(parse_keys([f"{ONE} alice"]))
    assert ONE not in repr((vars(keys), keys.accounts, [vars(account) for account in keys.accounts]))


def test_a_changed_file_takes_effect_at_once_and_keys_that_stay_keep_their_account(tmp_path: Path):
    file = tmp_path / "keys"
    file.write_text(f"{ONE} a running=1\n{TWO} b\n")
    keys = KeyRing(read_keys(file), file)
    stays = keys.find(ONE)
    file.write_text(f"{THREE} c\n{ONE} a running=1\n")
    assert keys.find(TWO) is None
    assert keys.find(ONE) is stays
    assert keys.find(THREE) is not None


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda file: file.write_text("nonsense"), lambda file: file.write_bytes(b"\xff")]
)
def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path, spoil):
    file = tmp_path / "keys"
    file.write_text(ONE)
    keys = KeyRing(read_keys(file), file)
    spoil(file)
    assert keys.find(ONE) is not None
    file.write_text(TWO)
    assert keys.find(ONE) is None
    assert keys.find(TWO) is not None
