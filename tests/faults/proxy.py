"""The network in front of a service, as a test wants it: cut off, broken off, slow, and whole again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

HOST = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Proxy:
    """Carries new TCP connections to `target_port`. `start` gives it a port of its own, which it keeps."""

    def __init__(self, target_port: int = 0) -> None:
        self.port = 0
        self.target_port = target_port
        self._whole = asyncio.Event()
        self._whole.set()
        self._refuses = False
        self._delay_s = 0.0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def carries(self) -> int:
        """Connections that are open from end to end."""
        return len(self._writers) // 2

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.break_off()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def cut(self) -> None:
        """Nothing passes, and nobody is told."""
        self._whole.clear()

    def slow(self, delay_s: float) -> None:
        """Every piece of data takes so much longer."""
        self._delay_s = delay_s

    def break_off(self, refuse: bool = False) -> None:
        """Resets every connection; and every new one, with `refuse`."""
        self._refuses = refuse
        for writer in self._writers:
            _reset(writer)

    def heal(self) -> None:
        self._refuses = False
        self._delay_s = 0.0
        self._whole.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._whole.wait()
            if self._refuses:
                return
            there, back = await asyncio.open_connection(HOST, self.target_port)
            self._writers.add(back)
            try:
                pumps = [asyncio.create_task(self._pump(*ends)) for ends in ((reader, back), (there, writer))]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
            finally:
                self._drop(back)
        finally:
            self._drop(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._whole.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
