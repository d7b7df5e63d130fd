"""What is shipped: found for the packaged target alone, small, made for it, and refused when a byte of it differs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hetspec.model.checkpoint import CheckpointError, open_checkpoint, open_draft
from hetspec.model.checkpoint.acceptance_folder import open_acceptance
from hetspec.model.checkpoint.early_exit_folder import open_early_exit
from weight_store import shipped
from weight_store.config import WeightStoreSettings, embedded_model

MOST_BYTES = 30_000_000
FOLDERS = (shipped.DRAFT, shipped.EARLY_EXIT, shipped.ACCEPTANCE)


@pytest.mark.parametrize(
    ("settings", "draft"),
    [
        ({}, shipped.DRAFT),
        ({"draft": "none"}, None),
        ({"draft": Path("mine")}, Path("mine")),
        ({"target": Path("other")}, None),
        ({"target": Path("other"), "draft": Path("mine")}, Path("mine")),
    ],
)
def test_the_shipped_draft_is_served_where_neither_target_nor_draft_is_named(
    settings: dict[str, object], draft: Path | None
) -> None:
    assert WeightStoreSettings(**settings).checkpoints().get("draft") == draft


@pytest.mark.parametrize(
    ("settings", "early_exit"),
    [
        ({}, shipped.EARLY_EXIT),
        ({"early_exit": "none"}, None),
        ({"early_exit": Path("mine")}, Path("mine")),
        ({"target": Path("other")}, None),
        ({"target": Path("other"), "early_exit": Path("mine")}, Path("mine")),
    ],
)
def test_the_shipped_predictor_is_served_where_neither_target_nor_predictor_is_named(
    settings: dict[str, object], early_exit: Path | None
) -> None:
    assert WeightStoreSettings(**settings).early_exit_folder() == early_exit


@pytest.mark.parametrize(
    ("settings", "acceptance"),
    [
        ({}, shipped.ACCEPTANCE),
        ({"acceptance": "none"}, None),
        ({"acceptance": Path("~/mine")}, Path("~/mine").expanduser()),
        ({"draft": Path("other")}, None),
        ({"draft": "none"}, None),
        ({"target": Path("other")}, None),
        ({"target": Path("other"), "draft": Path("mine"), "acceptance": Path("mine")}, Path("mine")),
    ],
)
def test_the_shipped_acceptance_head_is_served_with_the_shipped_draft_alone(
    settings: dict[str, object], acceptance: Path | None
) -> None:
    assert WeightStoreSettings(**settings).acceptance_folder() == acceptance


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_file_is_named_with_the_hash_that_sha256sum_finds(folder: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", shipped.SUMS_FILE], cwd=folder, check=True)
    named = {line.split()[1] for line in (folder / shipped.SUMS_FILE).read_text().splitlines()}
    assert named | {shipped.SUMS_FILE} == {path.name for path in folder.iterdir()}


def test_all_of_it_is_small() -> None:
    assert sum(path.stat().st_size for folder in FOLDERS for path in folder.iterdir()) <= MOST_BYTES


def test_all_open_for_the_packaged_target() -> None:
    target = open_checkpoint(embedded_model())
    draft = open_draft(shipped.DRAFT, target)
    assert draft.config.reads_features
    judging = open_acceptance(shipped.ACCEPTANCE, target.fingerprint(), draft.fingerprint())
    assert judging.config.hidden_size == draft.config.hidden_size
    assert open_early_exit(shipped.EARLY_EXIT, target.fingerprint()).config.layer <= target.config.n_layers // 2


@pytest.mark.parametrize("shipped_folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_is_refused_by_name(name: str, shipped_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shipped_folder, tmp_path / "copy"))
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name}: damaged"):
        shipped.checked(folder)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        shipped.checked(folder)
