"""The network in front of the boxes: loopback ports that forward, count bytes, refuse or stay silent."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, Self

_CHUNK = 1 << 16
_LINGER_RESET = struct.pack("ii", 1, 0)


class Mood(StrEnum):
    """How a port treats who connects."""

    OPEN = "open"
    REFUSING = "refusing"
    """The connection is reset at once."""
    SILENT = "silent"
    """Packets vanish: nothing is answered, open connections stall."""


class Gateway:
    """All forwarded ports of an emulator, served by one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._thread.start()

    def open(self, address: str, target: Callable[[], int | None]) -> Self:
        """A new port of a loopback address. `target` says where it leads now: a local port, or nowhere."""
        listener = socket.create_server((address, 0), backlog=128)
        port = Port(listener.getsockname()[1], target, self._call)
        self._call(port.serve(listener))
        return port

    def close(self) -> None:
        """No port forwards any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Port:
    """One forwarded port. `received` and `sent` are bytes into and out of the box."""

    def __init__(
        self, number: int, target: Callable[[], int | None], call: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self.number = number
        self.received = 0
        self.sent = 0
        self.bytes_per_s: float | None = None
        """How fast each direction of a connection is; None for as fast as it goes."""
        self._target = target
        self._call = call
        self._mood = Mood.OPEN
        self._links: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None

    @property
    def mood(self) -> Mood:
        """How it treats who connects now."""
        return self._mood

    def set_mood(self, mood: Mood) -> None:
        """From now on; `REFUSING` also resets what is connected."""
        self._call(self._change(mood))

    def lead_to(self, target: Callable[[], int | None]) -> None:
        """Whoever connects from now on gets there."""
        self._target = target

    def close(self) -> None:
        """Nobody listens any more."""
        self._call(self._close())

    async def serve(self, listener: socket.socket) -> None:
        """Listens; called by the gateway's thread."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=_CHUNK)

    async def _change(self, mood: Mood) -> None:
        self._mood = mood
        if mood is Mood.SILENT:
            self._flowing.clear()
        else:
            self._flowing.set()
        if mood is Mood.REFUSING:
            self._reset_all()

    async def _close(self) -> None:
        if self._server:
            self._server.close()
        self._flowing.set()
        self._reset_all()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = self._target()
        if self._mood is Mood.REFUSING or target is None:
            _reset(writer)
            return
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", target, limit=_CHUNK)
        except OSError:
            _reset(writer)
            return
        self._links |= {writer, inner_writer}
        try:
            await asyncio.gather(
                self._pump(reader, inner_writer, inward=True), self._pump(inner_reader, writer, inward=False)
            )
        finally:
            self._links -= {writer, inner_writer}
            writer.transport.abort()
            inner_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, inward: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                await self._flowing.wait()
                if self.bytes_per_s:
                    await asyncio.sleep(len(chunk) / self.bytes_per_s)
                if inward:
                    self.received += len(chunk)
                else:
                    self.sent += len(chunk)
                writer.write(chunk)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            await _drain_and_close(writer)

    def _reset_all(self) -> None:
        for writer in list(self._links):
            _reset(writer)


async def _drain_and_close(writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    writer.transport.abort()
