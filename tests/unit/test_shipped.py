"""What is shipped: found for the packaged target alone, small, made for it, and refused when a byte of it differs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hetspec.model.checkpoint import CheckpointError, open_checkpoint, open_draft
from weight_store import shipped
from weight_store.config import WeightStoreSettings, embedded_model

MOST_BYTES = 30_000_000


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


def test_every_file_is_named_with_the_hash_that_sha256sum_finds() -> None:
    subprocess.run(["sha256sum", "--check", "--strict", shipped.SUMS_FILE], cwd=shipped.DRAFT, check=True)
    named = {line.split()[1] for line in (shipped.DRAFT / shipped.SUMS_FILE).read_text().splitlines()}
    assert named | {shipped.SUMS_FILE} == {path.name for path in shipped.DRAFT.iterdir()}
    assert sum(path.stat().st_size for path in shipped.DRAFT.iterdir()) <= MOST_BYTES


def test_it_opens_for_the_packaged_target() -> None:
    draft = open_draft(shipped.DRAFT, open_checkpoint(embedded_model()))
    assert draft.config.reads_features


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_is_refused_by_name(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shipped.DRAFT, tmp_path / "draft"))
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name}: damaged"):
        shipped.checked(folder)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        shipped.checked(folder)
