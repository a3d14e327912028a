"""Frames on a socket: 8 bytes of length, then the content. A blocking end, and one that never waits."""

from __future__ import annotations

import socket
import struct

CHUNK = 2**20
HEAD = struct.Struct("<Q")


def write_frame(channel: socket.socket, content: bytes) -> None:
    """Send one frame, waiting as long as it takes. Raises OSError when the other end is gone."""
    channel.sendall(HEAD.pack(len(content)))
    channel.sendall(content)


def read_frame(channel: socket.socket) -> bytes:
    """The next frame, waiting as long as it takes. Raises EOFError or OSError when the other end is gone."""
    (size,) = HEAD.unpack(_read(channel, HEAD.size))
    return _read(channel, size)


def _read(channel: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        piece = channel.recv(min(size - len(content), CHUNK))
        if not piece:
            raise EOFError("the other end is closed")
        content += piece
    return bytes(content)


class RoundTrip:
    """One frame out, one frame in, in as many pieces as the channel likes; the channel must not block."""

    def __init__(self, channel: socket.socket, content: bytes) -> None:
        self.channel = channel
        self.unsent = memoryview(HEAD.pack(len(content)) + content)
        self.received = bytearray()

    @property
    def reply(self) -> bytes | None:
        """The frame that came in, once all of it has."""
        if len(self.received) < HEAD.size:
            return None
        (size,) = HEAD.unpack_from(self.received)
        return bytes(self.received[HEAD.size :]) if len(self.received) - HEAD.size >= size else None

    def write(self) -> None:
        """Send what the channel takes now. Raises OSError when the other end is gone."""
        self.unsent = self.unsent[self.channel.send(self.unsent) :]

    def read(self) -> None:
        """Take what has arrived. Raises EOFError or OSError when the other end is gone."""
        piece = self.channel.recv(CHUNK)
        if not piece:
            raise EOFError("the other end is closed")
        self.received += piece
