"""Files that a command leaves behind. Whether it can is found out before its work begins, not after."""

from __future__ import annotations

from pathlib import Path

from hetspec_client.errors import InvalidInput


def writable(option: str, path: Path) -> None:
    """Makes the file's folder. Raises InvalidInput where the file cannot be written; what is in it stays."""
    _try_to_write(path, option, path)


def writable_folder(option: str, folder: Path) -> None:
    """Makes it. Raises InvalidInput where no file can be written into it."""
    _try_to_write(folder / ".writable", option, folder)


def write_file(option: str, path: Path, text: str) -> None:
    """And its folder. Raises InvalidInput."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _refused(option, path, error) from error


def _try_to_write(file: Path, option: str, named: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        is_new = not file.exists()
        file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise _refused(option, named, error) from error


def _refused(option: str, path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"{option} {path}: {error.strerror}")
