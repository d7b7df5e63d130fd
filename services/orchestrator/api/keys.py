"""Who may use the server: API keys, of which only digests are kept."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hetspec.rpc.logs import log_event
from orchestrator.api.account import Account, Limits

_KEY = re.compile(r"[!-~]{16,256}")  # printable ASCII, and too long to guess
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_LIMIT = re.compile(r"(running|requests_per_minute|tokens_per_minute)=([1-9][0-9]{0,11})")


@dataclass(frozen=True, slots=True)
class ApiKey:
    name: str
    digest: bytes
    limits: Limits = Limits()


def parse_keys(entries: Iterable[str]) -> tuple[ApiKey, ...]:
    """`KEY [NAME] [running=N] [requests_per_minute=N] [tokens_per_minute=N]` each; # begins a comment.

    Raises ValueError that names the entry and never shows it.
    """
    keys: dict[bytes, ApiKey] = {}
    for number, entry in enumerate(entries, 1):
        words = entry.partition("#")[0].split()
        if not words:
            continue
        try:
            key = _parse(words, f"key-{number}")
        except ValueError as error:
            raise ValueError(f"entry {number}: {error}") from None
        if key.digest in keys or any(key.name == other.name for other in keys.values()):
            raise ValueError(f"entry {number}: its key or name has been given before")
        keys[key.digest] = key
    if not keys:
        raise ValueError("holds no key")
    return tuple(keys.values())


def _parse(words: list[str], default_name: str) -> ApiKey:
    secret, *rest = words
    if not _KEY.fullmatch(secret):
        raise ValueError("a key must have 16 to 256 printable ASCII characters")
    name = rest.pop(0) if rest and "=" not in rest[0] else default_name
    if not _NAME.fullmatch(name):
        raise ValueError("a name may have up to 64 letters, digits and . _ - @")
    limits: dict[str, int] = {}
    for word in rest:
        if (match := _LIMIT.fullmatch(word)) is None or match[1] in limits:
            raise ValueError(
                "limits are running=N, requests_per_minute=N, tokens_per_minute=N, each once, N at least 1"
            )
        limits[match[1]] = int(match[2])
    return ApiKey(name, _digest(secret), Limits(**limits))


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """A file with one entry a line. Raises ValueError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8") from None
    try:
        return parse_keys(text.splitlines())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class KeyRing:
    """With a `file`, it is read again whenever it has changed: a key that was taken out is refused at once.

    A key whose entry has not changed keeps its account. A file that cannot be read changes nothing.
    """

    def __init__(self, keys: Iterable[ApiKey], file: Path | None = None) -> None:
        self._file = file
        self._seen = _version(file) if file else None
        self._accounts: dict[ApiKey, Account] = {}
        self._take(keys)

    @property
    def accounts(self) -> tuple[Account, ...]:
        return tuple(self._accounts.values())

    def find(self, secret: str) -> Account | None:
        """In a time that tells nothing of the keys."""
        self._refresh()
        digest, found = _digest(secret), None
        for key, account in self._accounts.items():
            if hmac.compare_digest(key.digest, digest):
                found = account
        return found

    def _refresh(self) -> None:
        if self._file is None or (seen := _version(self._file)) == self._seen:
            return
        self._seen = seen
        try:
            self._take(read_keys(self._file))
        except ValueError as error:
            log_event("API keys not read again", level=logging.WARNING, reason=str(error))

    def _take(self, keys: Iterable[ApiKey]) -> None:
        self._accounts = {key: self._accounts.get(key) or Account(key.name, key.limits) for key in keys}


def _version(file: Path) -> object:
    try:
        found = os.stat(file)  # noqa: PTH116  one look, not an object
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
