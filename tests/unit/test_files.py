"""A command that writes files at its end finds out before its work whether it can, and makes the folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetspec_client import cli
from hetspec_client.errors import InvalidInput
from hetspec_client.files import writable, writable_folder, write_file

NOWHERE = "http://127.0.0.1:1"  # a verb that looks there first ends with another message and exit code
STUDY = ("--record", "no-record.npz")
TRAINING = ("--target", "no-target", "--draft", "no-draft")


def test_a_folder_that_is_missing_is_made_and_what_is_there_stays(tmp_path: Path) -> None:
    writable("--out", tmp_path / "a" / "b" / "new.txt")
    writable_folder("--out", tmp_path / "c" / "d")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["a", "a/b", "c", "c/d"]
    (tmp_path / "old.txt").write_text("old")
    writable("--out", tmp_path / "old.txt")
    assert (tmp_path / "old.txt").read_text() == "old"
    write_file("--out", tmp_path / "old.txt", "neu, é")
    assert (tmp_path / "old.txt").read_text("utf-8") == "neu, é"


@pytest.mark.parametrize("name", ["file/below.txt", "", "x" * 300])
def test_what_cannot_be_written_is_refused_by_option_and_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    for refuse in (lambda path: writable("--out", path), lambda path: write_file("--out", path, "")):
        with pytest.raises(InvalidInput) as refused:
            refuse(tmp_path / name)
        assert str(refused.value).startswith(f"--out {tmp_path / name}: ")


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        (("trace", "mine", "--url", NOWHERE), "--out"),
        (("trace", "mine", "--url", NOWHERE), "--picture"),
        (("profile", "verifier", "--url", NOWHERE), "--out"),
        (("calibrate", "--verifier", "127.0.0.1:1"), "--out"),
        (("record", "--target", "no-target", "--prompts", "no-prompts"), "--out"),
        (("bench", "lever", *STUDY), "--out"),
        (("bench", "lever", *STUDY), "--work"),
        (("bench", "ahasd", *STUDY), "--out"),
        (("bench", "ahasd", *STUDY), "--work"),
        (("train", "draft", "--target", "no-target"), "--out"),
        (("train", "draft", "--target", "no-target", "--out", "OUT"), "--work"),
        (("train", "early-exit", *TRAINING), "--out"),
        (("train", "acceptance", *TRAINING), "--out"),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, tuple) else given,
)
def test_a_verb_refuses_a_place_that_it_cannot_write_to_before_it_does_anything(
    verb: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code = cli.main([*verb, option, "file/out.yaml"])
    told = capfd.readouterr().err
    assert (code, told.startswith(f"hetspec: {option} file/out.yaml"), told.count("\n")) == (2, True, 1), told


def test_a_study_refuses_an_acceptance_that_is_empty_and_a_file_without_a_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for options, told in (
        (("--accept", ""), "--accept '', must be numbers with commas between them"),
        (("--out", "."), "--out .: must name files, not a folder"),
    ):
        for study in ("lever", "ahasd"):
            assert cli.main(["bench", study, *STUDY, *options]) == 2
            assert capfd.readouterr().err == f"hetspec: {told}\n"
