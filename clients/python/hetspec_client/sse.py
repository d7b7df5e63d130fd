"""Server-sent events (WHATWG HTML, section 9.2), fed in pieces of any size.

Lines end with LF or CR LF. U+2028 and its like, which `str.splitlines` takes for ends, are text. The lone CR that the
standard also allows is not: no known server writes it.
"""

from __future__ import annotations

from collections.abc import Iterator


class EventDecoder:
    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def push(self, piece: bytes) -> Iterator[bytes]:
        """The data of every event that is complete now."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            field = line.removesuffix(b"\r")
            if field:
                self._field(field)
            elif self._data:
                data = b"\n".join(self._data)
                self._data.clear()
                yield data

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
