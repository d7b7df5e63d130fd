from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import make_checkpoint


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packs, made once for all tests."""
    return tmp_path_factory.mktemp("packs")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "qwen3", num_hidden_layers=4)
