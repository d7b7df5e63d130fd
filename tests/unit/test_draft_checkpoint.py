"""Draft folders: the layers are given the target's embedding, mixed; what does not fit is refused with a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from hetspec.model.checkpoint import Checkpoint, CheckpointError, open_checkpoint, open_draft
from hetspec.model.checkpoint.base import expected_shapes
from hetspec.model.checkpoint.draft_checkpoint import DraftConfig
from tests.draft_artefact import draft_config, make_draft
from tests.models import make_checkpoint

TRIMMED = 50


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(make_checkpoint(tmp_path_factory.mktemp("target"), "smollm", gguf=True))


@pytest.fixture
def folder(target: Checkpoint, tmp_path: Path) -> Path:
    return make_draft(tmp_path / "draft", target.path, head_vocab_size=TRIMMED)


def test_tensors_are_those_of_the_file_and_the_text_is_the_targets(folder: Path, target: Checkpoint) -> None:
    draft, stored = open_draft(folder, target), load_file(folder / "model.safetensors")
    assert draft.config == draft_config(target, head_vocab_size=TRIMMED)
    assert draft.text == target.text
    for name, shape in expected_shapes(draft.config):
        if name != "embed":
            np.testing.assert_array_equal(draft.tensor(name), stored[name].astype(np.float32))
            assert draft.tensor(name).shape == shape
    np.testing.assert_array_equal(draft.head_ids(), stored["head_ids"])


def test_the_embedding_is_the_norm_of_the_targets_mixed(folder: Path, target: Checkpoint) -> None:
    draft, mix = open_draft(folder, target), load_file(folder / "model.safetensors")["embed_mix"].astype(np.float64)
    for token in (0, 7, target.config.vocab_size - 1):
        x = target.rows("embed", token, token + 1)[0].astype(np.float64)
        wanted = mix @ (x / np.sqrt((x @ x) / len(x) + draft.config.rms_eps))
        np.testing.assert_allclose(draft.rows("embed", token, token + 1)[0], wanted, rtol=1e-6, atol=1e-6)


def test_an_embedding_row_is_the_same_whichever_are_read_with_it(
    folder: Path, target: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetspec.model.checkpoint.draft_checkpoint._ROWS_AT_ONCE", 32)
    draft = open_draft(folder, target)
    whole = draft.tensor("embed")
    assert whole.shape == (target.config.vocab_size, target.config.hidden_size)
    for start, stop in ((0, 1), (31, 33), (64, 96), (5, 200), (len(whole) - 3, len(whole))):
        assert draft.rows("embed", start, stop).tobytes() == whole[start:stop].tobytes()


def test_a_head_that_is_not_trimmed_has_every_id(target: Checkpoint, tmp_path: Path) -> None:
    draft = open_draft(make_draft(tmp_path, target.path, reads_features=False), target)
    assert draft.tensor("head").shape == (target.config.vocab_size, target.config.hidden_size)
    np.testing.assert_array_equal(draft.head_ids(), np.arange(target.config.vocab_size))


def test_its_fingerprint_is_of_its_own_files_and_the_targets(folder: Path, target: Checkpoint) -> None:
    draft = open_draft(folder, target)
    assert set(draft.files().values()) == {folder / "config.json", folder / "model.safetensors", target.path}
    before = draft.fingerprint()
    rewrite(folder, lambda tensors: tensors["final_norm"].__setitem__(0, 2))
    assert draft.fingerprint() != before != target.fingerprint()


def test_any_other_checkpoint_is_opened_as_ever(target: Checkpoint, tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, "smollm", seed=1)
    assert open_draft(path, target).config == open_checkpoint(path).config


def test_the_config_is_read_as_it_was_written(target: Checkpoint) -> None:
    config = DraftConfig("t", "f" * 32, draft_config(target, head_vocab_size=7))
    assert DraftConfig.from_json(json.loads(config.to_json())) == config


Tensors = dict[str, NDArray[Any]]


def rewrite(folder: Path, change: Callable[[Tensors], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def reconfigure(folder: Path, **changes: Any) -> None:
    """Keys of config.json, "a.b" for b in a; None takes one away."""
    data = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        outer, _, inner = key.rpartition("__")
        place = data[outer] if outer else data
        if value is None:
            del place[inner]
        else:
            place[inner] = value
    (folder / "config.json").write_text(json.dumps(data))


BAD_CONFIGS: dict[str, dict[str, Any]] = {
    "format = 'other', must be 'hetspec-draft'": {"format": "other"},
    "version = 2, must be 1": {"version": 2},
    "version = True, must be 1": {"version": True},
    r"shared = \['embed', 'head'\], must be \['embed'\]": {"shared": ["embed", "head"]},
    r"config: unknown fields \['extra'\], missing \[\]": {"extra": 1},
    r"config: unknown fields \[\], missing \['shared'\]": {"shared": None},
    r"target: unknown fields \[\], missing \['name'\]": {"target__name": None},
    "target.name = 3, must be a string": {"target__name": 3},
    r"config: unknown fields \['depth'\]": {"model__depth": 3},
    r"made for tiny llama with fingerprint 00, the target tiny llama has [0-9a-f]{32}": {"target__fingerprint": "00"},
    "model.vocab_size = 640, must be the target's": {"model__vocab_size": 640},
    "model.hidden_size = 64, must be the target's 96": {"model__hidden_size": 64},
    "model.tied_head = true, must be false": {"model__tied_head": True},
    r"head_vocab_size = 99999, must be in \[0, vocab_size = ": {"model__head_vocab_size": 99999},
    r"head_vocab_size = -1, must be in \[0, ": {"model__head_vocab_size": -1},
    "reads_features = 1, must be true or false": {"model__reads_features": 1},
}


@pytest.mark.parametrize("line", list(BAD_CONFIGS))
def test_a_config_that_does_not_fit_is_refused_with_a_line_that_says_why(
    line: str, folder: Path, target: Checkpoint
) -> None:
    reconfigure(folder, **BAD_CONFIGS[line])
    with pytest.raises(CheckpointError, match=rf"^{folder}/config\.json: {line}[^\n]*$"):
        open_draft(folder, target)


BAD_TENSORS: dict[str, Callable[[Tensors], Any]] = {
    "tensor feature_mix is missing": lambda t: t.pop("feature_mix"),
    "tensor embed is not known in a draft": lambda t: t.update(embed=t["head"]),
    r"tensor layers\.0\.o has shape \[96, 32\], config\.json says \[96, 96\]": lambda t: t.update(
        {"layers.0.o": np.ascontiguousarray(t["layers.0.o"][:, :32])}
    ),
    "tensor head_ids is F32, must be U32": lambda t: t.update(head_ids=t["head_ids"].astype(np.float32)),
    "tensor final_norm is U32, must be F32, F16, BF16": lambda t: t.update(
        final_norm=t["final_norm"].astype(np.uint32)
    ),
    r"head_ids\[49\] = 3 after \d+, ids must ascend": lambda t: t["head_ids"].__setitem__(-1, 3),
    r"head_ids\[49\] = (\d+) after \1, ids must ascend": lambda t: t["head_ids"].__setitem__(-1, t["head_ids"][-2]),
    r"head_ids\[49\] = 99999, must be in \[0, \d+\)": lambda t: t["head_ids"].__setitem__(-1, 99999),
}


@pytest.mark.parametrize("line", list(BAD_TENSORS))
def test_tensors_that_do_not_fit_are_refused_with_a_line_that_says_which(
    line: str, folder: Path, target: Checkpoint
) -> None:
    rewrite(folder, BAD_TENSORS[line])
    with pytest.raises(CheckpointError, match=rf"^{folder}/model\.safetensors: {line}$"):
        open_draft(folder, target)


def test_a_mix_that_is_not_finite_is_refused(folder: Path, target: Checkpoint) -> None:
    rewrite(folder, lambda tensors: tensors["embed_mix"].__setitem__((0, 0), np.nan))
    with pytest.raises(CheckpointError, match="tensor embed_mix holds a value that is not finite"):
        open_draft(folder, target)


def test_a_folder_without_its_weights_is_refused(folder: Path, target: Checkpoint) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read"):
        open_draft(folder, target)


def test_a_draft_is_no_target(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="architectures None"):
        open_checkpoint(folder)
