"""An HTTP proxy on loopback that does harm on demand; run as a program, it is steered by lines of JSON on its input.

A line such as `{"fail": 0.3}` sets the faults of all later requests; the answer is the requests since the last line:
    status, fail    this HTTP status is the answer, to this share of requests
    cut             share of bodies that end in the middle, the connection broken
    stall           true: no answer at all
    rate            bytes a second of a body
    only            faults are for requests whose line has this text; others pass
"""

import asyncio
import contextlib
import json
import random
import sys

_PIECE = 16 << 10


class Proxy:
    def __init__(self, port: int) -> None:
        self._port = port
        self._faults: dict = {}
        self._random = random.Random(0)
        self._requests: list[str] = []
        self._stalled = asyncio.Event()

    async def steer(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            self._faults, self._random = json.loads(line), random.Random(0)
            self._stalled.set()
            self._stalled = asyncio.Event()
            print(json.dumps(self._requests), flush=True)
            self._requests = []

    async def serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self._one(client, answer):
                pass
        answer.close()

    async def _one(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> bool:
        head = (await client.readuntil(b"\r\n\r\n")).decode("latin1")
        line, *headers = head.strip().split("\r\n")
        length = next((int(h.split(":")[1]) for h in headers if h.lower().startswith("content-length:")), 0)
        body = await client.readexactly(length)
        wanted = next((h for h in headers if h.lower().startswith("range:")), "")
        self._requests.append(f"{line.rsplit(' ', 1)[0]} {wanted}".strip())
        faults = self._faults if self._faults.get("only", "") in line else {}
        if faults.get("stall"):
            await self._stalled.wait()
            return False
        if self._random.random() < faults.get("fail", 0):
            text = b"<Error><Code>Fault</Code><Message>made by a test</Message></Error>"
            status = faults.get("status", 503)
            answer.write(b"HTTP/1.1 %d Fault\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
            await answer.drain()
            return True
        await self._forward(line, headers, body, answer, faults)
        return False

    async def _forward(self, line: str, headers: list, body: bytes, answer: asyncio.StreamWriter, faults: dict) -> None:
        server, request = await asyncio.open_connection("127.0.0.1", self._port)
        kept = [line, *(h for h in headers if not h.lower().startswith(("connection:", "host:")))]
        kept += ["Connection: close", f"Host: 127.0.0.1:{self._port}"]
        request.write("\r\n".join(kept).encode("latin1") + b"\r\n\r\n" + body)
        found = await server.readuntil(b"\r\n\r\n") + await server.read(-1)
        request.close()
        if self._random.random() < faults.get("cut", 0):
            begin = found.index(b"\r\n\r\n") + 4
            answer.write(found[: begin + (len(found) - begin) // 2])
            await answer.drain()
            answer.transport.abort()
            return
        for start in range(0, len(found), _PIECE):
            if rate := faults.get("rate"):
                await asyncio.sleep(_PIECE / rate)
            answer.write(found[start : start + _PIECE])
            await answer.drain()


async def main(port: int) -> None:
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await proxy.steer(lines)  # until the tests are over
    server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
