"""A record holds what was recorded, and a file that is none is refused by name."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetspec.model.config import ModelConfig
from laboratory.errors import StudyError
from laboratory.record import About, Answer, Record, read_record, write_record

CONFIG = ModelConfig(
    family="llama", name="toy", vocab_size=50, hidden_size=8, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=4,
    ffn_size=16, max_context=512, rope_theta=10000.0, rms_eps=1e-5, rope_scaling=None,
)  # fmt: skip
ABOUT = About("toy", "f" * 32, "int8", CONFIG.to_json(), [2], 16, 0.0, 0, ["math", "talk"])


def rows(count: int, dtype: type[np.floating[Any]] = np.float32) -> np.ndarray[Any, np.dtype[Any]]:
    return np.random.default_rng(count).normal(size=(count, 8)).astype(dtype)


def record(dtype: type[np.floating[Any]] | None = np.float32) -> Record:
    answers = (Answer((1, 2, 3), (4, 5), "math"), Answer((6,), (7, 8, 9), "talk"))
    if dtype is not None:
        answers = tuple(replace(answer, rows=rows(len(answer.ids), dtype)) for answer in answers)
    return Record(ABOUT, answers)


@pytest.mark.parametrize("dtype", [None, np.float16, np.float32])
def test_what_is_read_is_what_was_written(tmp_path: Path, dtype: type[np.floating[Any]] | None) -> None:
    written, path = record(dtype), tmp_path / "a.npz"
    write_record(path, written)
    read = read_record(path)
    assert read.about == written.about
    assert [(a.prompt, a.tokens, a.category) for a in read.answers] == [
        (a.prompt, a.tokens, a.category) for a in written.answers
    ]
    for one, other in zip(read.answers, written.answers, strict=True):
        assert (one.rows is None) == (dtype is None)
        if one.rows is not None and other.rows is not None:
            assert one.rows.dtype == dtype
            assert np.array_equal(one.rows, other.rows)


def changed(path: Path, **arrays: Any) -> Path:
    with np.load(path) as file:
        known = dict(file)
    np.savez(path, **{name: value for name, value in (known | arrays).items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"ids": None}, "a record holds"),
        ({"ids": np.full(9, 50, np.uint32)}, "ids: 50, must be below 50"),
        ({"ids": np.zeros(8, np.uint32)}, "sum to the 8 ids"),
        ({"answer_tokens": np.array([2, 0], np.int32)}, "must be positive"),
        ({"answer_tokens": np.array([2], np.int32)}, "differ"),
        ({"rows": np.zeros((9, 7), np.float32)}, r"rows: \(9, 7\), must be \(9, 8\)"),
        ({"rows": np.full((9, 8), np.nan, np.float32)}, "finite"),
        ({"about": np.array('{"format": "other", "version": 1}')}, "format hetspec-record, version 1"),
        ({"about": np.array("[")}, "Expecting value"),
        ({"ids": np.full(9, "a")}, "ids: must be an array of type 'u' and 1 dimensions"),
        ({"prompt_tokens": np.zeros((2, 1), np.int32)}, "prompt_tokens: must be an array of type 'i' and 1 dim"),
    ],
)
def test_a_wrong_record_is_refused_in_a_line_that_names_the_file(
    tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    path = tmp_path / "a.npz"
    write_record(path, record())
    with pytest.raises(StudyError, match=said) as refused:
        read_record(changed(path, **arrays))
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def one_array() -> bytes:
    data = io.BytesIO()
    np.save(data, np.zeros(3))
    return data.getvalue()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b'{"turns": ["hi"]}', pickle.dumps([1]), one_array()])
def test_what_is_no_record_at_all_is_refused_as_such(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=r"a\.npz: no record of `hetspec record`: must be an \.npz file$"):
        read_record(path)


def test_a_record_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"a\.npz: No such file or directory$"):
        read_record(tmp_path / "a.npz")


def test_a_record_of_another_target_is_refused() -> None:
    record().check_target("f" * 32)
    with pytest.raises(StudyError, match="another target"):
        record().check_target("0" * 32)
