"""Messages between processes arrive whole, with their descriptors, whatever their size."""

import os
import socket
import threading

import pytest

from pyloader_delta.engine.channel import Channel


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    channels = Channel(one), Channel(other)
    yield channels
    for channel in channels:
        channel.close()


@pytest.mark.parametrize("n_fds", [0, 1, 200, 201, 450])
@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_messages_of_any_size_arrive_with_their_descriptors(ends, size, n_fds):
    sender, receiver = ends
    read, write = os.pipe()
    fds = [os.dup(write) for _ in range(n_fds)]
    body = os.urandom(size)

    def send():
        sender.send(("first", body), fds)
        sender.send("second")

    thread = threading.Thread(target=send)
    thread.start()
    try:
        message, found = receiver.recv()
        assert message == ("first", body)
        assert receiver.recv() == ("second", [])
        assert len(set(found)) == n_fds
        assert {os.fstat(fd).st_ino for fd in found} == ({os.fstat(write).st_ino} if fds else set())
    finally:
        thread.join()
        for fd in (read, write, *fds, *found):
            os.close(fd)


def test_the_end_of_the_other_side_is_told(ends):
    sender, receiver = ends
    sender.close()
    with pytest.raises(EOFError, match="closed"):
        receiver.recv()
