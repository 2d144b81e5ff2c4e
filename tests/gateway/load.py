"""Closed-loop streaming load that believes nothing: every stream is checked to its last event.

python tests/gateway/load.py --url http://127.0.0.1:8080 --key KEY --clients 32 --seconds 10

A stream is whole when it answers 200, its chunks come in order from one release, a finish reason
or the test server's counter has been seen, and `[DONE]` ends it. Prints one JSON object; `--json`
writes it too, with one entry per request. SIGINT ends the load early, with its figures. Exit code
1 when anything but whole streams came.
"""

# ruff: noqa: TID251, T201  # a program of its own

import argparse
import asyncio
import collections
import contextlib
import json
import pathlib
import random
import signal
import ssl
import sys
import time
import urllib.parse
from dataclasses import asdict, dataclass

RELEASE_HEADER = "x-llmdeploy-release"
SUBJECTS = (
    "rivers",
    "bread",
    "trains",
    "the moon",
    "bees",
    "chess",
    "salt",
    "glass",
    "maps",
    "tea",
)
QUESTIONS = (
    "Tell me one fact about {}.", "What are {} made of?", "Why do people like {}?",
    "Write a short sentence on {}.", "Explain {} to a child.",
)  # fmt: skip


@dataclass
class Result:
    """One request: `kind` is `ok`, `broken`, `disorder`, `unfinished`, `timeout`, `refused` or
    `status`."""

    started_s: float
    kind: str = "broken"
    status: int = 0
    release: str = ""
    served_by: str = ""
    ttft_s: float | None = None
    duration_s: float = 0.0
    tokens: int = 0
    detail: str = ""


class Connection:
    """One kept-alive HTTP/1.1 connection."""

    def __init__(self, url, verify):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = (
            parts.hostname,
            parts.port or (443 if parts.scheme == "https" else 80),
        )
        self.ssl = None
        if parts.scheme == "https":
            self.ssl = ssl.create_default_context()
            if not verify:
                self.ssl.check_hostname, self.ssl.verify_mode = False, ssl.CERT_NONE
        self.reader = self.writer = None

    async def post(self, path, key, body):
        """Status and headers of the answer; the body follows through `pieces`."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(
                self.host, self.port, ssl=self.ssl, limit=1 << 20
            )
        secret = f"authorization: Bearer {key}\r\n" if key else ""
        self.writer.write(
            f"POST {path} HTTP/1.1\r\nhost: {self.host}\r\n{secret}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        line = await self.reader.readline()
        if not line:
            raise ConnectionResetError("closed before an answer")
        status, headers = int(line.split()[1]), {}
        while (line := await self.reader.readline()) != b"\r\n":
            if not line:
                raise ConnectionResetError("closed in the headers")
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    async def pieces(self, headers):
        """The body as it arrives; ConnectionResetError where it ends early."""
        if "content-length" in headers:
            yield await self.reader.readexactly(int(headers["content-length"]))
            return
        while True:
            line = await self.reader.readline()
            if not line.endswith(b"\r\n"):
                raise ConnectionResetError("closed between chunks")
            size = int(line, 16)
            data = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield data[:-2]

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None


async def one(connection, options, body):
    result, start = Result(started_s=time.time()), time.monotonic()
    try:
        async with asyncio.timeout(options.timeout):
            await checked(connection, options, body, result, start)
    except TimeoutError:
        result.kind = "timeout"
    except ConnectionRefusedError as error:
        result.kind, result.detail = "refused", str(error)
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        result.kind, result.detail = "broken", f"{type(error).__name__}: {error}"
    if result.kind not in ("ok", "status"):
        connection.close()
    result.duration_s = time.monotonic() - start
    return result


async def checked(connection, options, body, result, start):
    status, headers = await connection.post("/v1/chat/completions", options.key, body)
    result.status, result.release = status, headers.get(RELEASE_HEADER, "")
    result.served_by = headers.get("x-llmdeploy-served-by", "")
    if status != 200:
        text = b"".join([piece async for piece in connection.pieces(headers)])
        result.kind, result.detail = "status", text[:200].decode(errors="replace")
        return
    rest, in_order, finished, done = b"", True, False, False
    async for piece in connection.pieces(headers):
        if result.ttft_s is None:
            result.ttft_s = time.monotonic() - start
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            if line[5:].strip() == b"[DONE]":
                done = True
                continue
            event = json.loads(line[5:])
            in_order = in_order and not done and fits(event, result, headers)
            finished = finished or ends(event, options)
    result.kind = "ok" if done and in_order and finished else "disorder"
    if not done:
        result.kind = "unfinished"


def fits(event, result, headers):
    """Whether the event belongs here: the test server numbers its tokens and names itself."""
    if "error" in event:
        return False
    if event.get("usage"):
        result.tokens = event["usage"]["completion_tokens"]
    elif "i" in event:
        result.tokens += 1
        return event["i"] == result.tokens - 1 and event["release"] == headers["x-release"]
    return True


def ends(event, options):
    reasons = [choice.get("finish_reason") for choice in event.get("choices", ())]
    return any(reasons) or event.get("i") == options.max_tokens - 1


def bodies(options, seed):
    """Short prompts that differ, endlessly."""
    chance = random.Random(seed)
    while True:
        prompt = chance.choice(QUESTIONS).format(chance.choice(SUBJECTS))
        tree = {
            "model": options.model, "stream": True, "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": prompt}], "max_tokens": options.max_tokens,
            "temperature": options.temperature, "seed": chance.randrange(1 << 30),
        }  # fmt: skip
        if options.itl_ms is not None:
            tree["itl_ms"] = options.itl_ms
        yield json.dumps(tree).encode()


async def client(options, seed, stop, results):
    connection, asked = Connection(options.url, not options.insecure), bodies(options, seed)
    await asyncio.sleep(seed * min(0.5, options.seconds / 4) / options.clients)
    while not stop.is_set():
        result = await one(connection, options, next(asked))
        results.append(result)
        pause_s = options.think if result.kind == "ok" else max(options.think, 0.05)
        if pause_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
    connection.close()


async def run(options):
    results, stop = [], asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.call_later(options.seconds, stop.set)
    await asyncio.gather(*(client(options, i, stop, results) for i in range(options.clients)))
    return results


def summary(results):
    """Counts by release and kind, and quantiles of TTFT and of the time per token after it."""
    releases = {}
    for release in sorted({r.release for r in results}):
        mine = [r for r in results if r.release == release]
        good = [r for r in mine if r.kind == "ok"]
        tpot = [(r.duration_s - r.ttft_s) / (r.tokens - 1) for r in good if r.tokens > 1]
        releases[release or "none"] = {
            "requests": len(mine),
            "kinds": dict(collections.Counter(r.kind for r in mine)),
            "non_2xx": dict(collections.Counter(str(r.status) for r in mine if r.kind == "status")),
            "tokens": sum(r.tokens for r in good),
            "ttft_s": quantiles([r.ttft_s for r in good]),
            "tpot_s": quantiles(tpot),
        }
    kinds = collections.Counter(r.kind for r in results)
    return {
        "requests": len(results),
        "ok": kinds["ok"],
        "broken": sum(kinds[k] for k in ("broken", "disorder", "unfinished", "timeout", "refused")),
        "non_2xx": kinds["status"],
        "tokens": sum(r.tokens for r in results if r.kind == "ok"),
        "releases": releases,
        "details": sorted({r.detail for r in results if r.detail})[:10],
    }


def quantiles(values):
    ordered = sorted(values)
    if not ordered:
        return None
    at = {p: ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] for p in (50, 95, 99)}
    return {f"p{p}": round(value, 4) for p, value in at.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="the gateway, such as http://127.0.0.1:8080")
    parser.add_argument("--key", default="", help="a token from `llmdeploy keys add`")
    parser.add_argument("--model", default="m", help="the served name")
    parser.add_argument("--clients", type=int, default=32, help="streams at one time")
    parser.add_argument("--seconds", type=float, default=10, help="how long new requests start")
    parser.add_argument("--max-tokens", type=int, default=16, help="tokens of each answer")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument(
        "--think", type=float, default=0, help="seconds between a client's requests"
    )
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one request")
    parser.add_argument("--itl-ms", type=float, help="asks the test server for that pace")
    parser.add_argument("--insecure", action="store_true", help="do not verify the certificate")
    parser.add_argument("--json", help="file for the figures and every request")
    options = parser.parse_args()
    results = asyncio.run(run(options))
    figures = summary(results)
    print(json.dumps(figures))
    if options.json:
        whole = {**figures, "results": [asdict(r) for r in results]}
        pathlib.Path(options.json).write_text(json.dumps(whole))
    return 0 if results and figures["ok"] == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
