"""A small OpenAI-shaped server that says which release and replica it is: `upstream.py RELEASE`.

Prints its port, then serves. The request's own fields steer it: `max_tokens`, `ttft_ms`,
`itl_ms`, `answer_status`; `GET /set?healthy=0&error_ratio=0.1&delay_ms=50` steers all later ones.
"""

# ruff: noqa: T201  # a program of its own

import asyncio
import itertools
import json
import sys
import urllib.parse

release = sys.argv[1]
replica = sys.argv[2] if len(sys.argv) > 2 else "0"
settings = {"healthy": 1.0, "error_ratio": 0.0, "delay_ms": 0.0}
counts = {"started": 0, "inflight": 0, "most_inflight": 0, "aborted": 0}
number = itertools.count()
memory = []


async def serve(reader, writer):
    try:
        while await one_request(reader, writer):
            pass
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def one_request(reader, writer):
    line = await reader.readline()
    if not line:
        return False
    method, target, _ = line.decode().split()
    headers = {}
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    path, _, query = target.partition("?")
    if path in ("/v1/chat/completions", "/v1/completions") and method == "POST":
        await completion(reader, writer, json.loads(body))
    elif path == "/set":
        settings.update({k: float(v) for k, v in urllib.parse.parse_qsl(query)})
        answer(writer, 200, settings)
    elif path in ("/health", "/ready"):
        answer(writer, 200 if settings["healthy"] else 503, {"phase": "ready"})
    elif path == "/counts":
        answer(writer, 200, counts)
    elif path == "/v1/models":
        answer(writer, 200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
    elif path == "/v1/echo":
        answer(writer, 200, {"headers": headers, "body_bytes": len(body)})
    elif path == "/grow":
        memory.append(bytearray(b"x") * int(query))
        answer(writer, 200, {"held_bytes": len(memory[-1])})
    else:
        answer(writer, 404, {"error": {"message": "no such path"}})
    await writer.drain()
    return True


async def completion(reader, writer, asked):
    counts["started"] += 1
    counts["inflight"] += 1
    counts["most_inflight"] = max(counts["most_inflight"], counts["inflight"])
    try:
        await asyncio.sleep((asked.get("ttft_ms", 0) + settings["delay_ms"]) / 1000)
        share = settings["error_ratio"]
        nth = next(number)
        if int((nth + 1) * share) > int(nth * share):
            answer(writer, 500, {"error": {"message": "as asked", "type": "server_error"}})
        elif asked.get("answer_status", 200) != 200:
            answer(writer, asked["answer_status"], {"error": {"message": "as asked"}})
        elif asked.get("stream"):
            await stream(reader, writer, asked)
        else:
            await asyncio.sleep(asked.get("itl_ms", 0) * asked.get("max_tokens", 1) / 1000)
            answer(writer, 200, whole(asked))
    except ConnectionError:
        counts["aborted"] += 1
        raise
    finally:
        counts["inflight"] -= 1


async def stream(reader, writer, asked):
    writer.write(
        f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        f"x-release: {release}\r\nx-replica: {replica}\r\n\r\n".encode()
    )
    await asyncio.sleep(asked.get("late_ms", 0) / 1000)
    loop = asyncio.get_running_loop()
    at = loop.time()
    for i in range(asked.get("max_tokens", 16)):
        delta = {"index": 0, "delta": {"content": f"token{i} "}, "finish_reason": None}
        event(writer, {"object": "chat.completion.chunk", "i": i, "release": release,
                       "choices": [delta]})  # fmt: skip
        await writer.drain()
        at += asked.get("itl_ms", 5) / 1000
        await asyncio.sleep(max(0, at - loop.time()))
        if reader.at_eof():
            raise ConnectionResetError
    event(writer, {"object": "chat.completion.chunk", "choices": [], "usage": usage(asked)})
    chunk(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")


def whole(asked):
    message = {"role": "assistant", "content": "token " * asked.get("max_tokens", 1)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": usage(asked)}


def usage(asked):
    tokens = asked.get("max_tokens", 16)
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def event(writer, data):
    chunk(writer, f"data: {json.dumps(data)}\n\n".encode())


def chunk(writer, data):
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def answer(writer, status, tree):
    body = json.dumps(tree).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nx-release: {release}\r\nx-replica: {replica}\r\n\r\n"
        .encode() + body
    )  # fmt: skip


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
