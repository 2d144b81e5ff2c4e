"""Live load: streaming chat clients in a closed loop that check every stream strictly.

    python examples/load.py --url http://127.0.0.1:8080 --key-file key --model NAME --json out.json
    python examples/load.py --show out.json --good RELEASE,RELEASE

Counts, per release, what each client saw: whole streams, broken streams (no finish, no [DONE], or a
second release in one stream), and answers other than 2xx. Ends after --seconds or on SIGTERM.
"""

import argparse
import asyncio
import collections
import json
import pathlib
import random
import signal
import sys
import time
from typing import Any

import httpx

WORDS = [
    "river",
    "stone",
    "garden",
    "lantern",
    "window",
    "bridge",
    "winter",
    "copper",
    "silver",
    "thunder",
    "meadow",
    "harbor",
]


def prompt(number: int) -> str:
    """A short question that differs from request to request."""
    chosen = random.Random(number).sample(WORDS, 3)
    return f"Write one sentence about {chosen[0]}, {chosen[1]} and {chosen[2]}."


async def ask(
    client: httpx.AsyncClient, number: int, options: argparse.Namespace
) -> dict[str, Any]:
    """One streamed request and what became of it."""
    seen: dict[str, Any] = {"at_s": time.time(), "kind": "broken", "release": None}
    body = {
        "model": options.model,
        "messages": [{"role": "user", "content": prompt(number)}],
        "max_tokens": options.max_tokens,
        "stream": True,
    }
    started_s = time.monotonic()
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            seen["release"] = answer.headers.get("x-llmdeploy-release")
            seen["status"] = answer.status_code
            if answer.status_code != 200:
                await answer.aread()
                seen["kind"] = f"http_{answer.status_code}"
                return seen
            await read_stream(answer, seen, started_s)
    except httpx.HTTPError as error:
        seen["kind"] = "broken" if "ttft_s" in seen else f"no answer ({type(error).__name__})"
        seen["error"] = repr(error)
    seen["duration_s"] = time.monotonic() - started_s
    return seen


async def read_stream(answer: httpx.Response, seen: dict[str, Any], started_s: float) -> None:
    """Reads a stream to its end; `kind` becomes ok only if it finished and said [DONE]."""
    finished = False
    async for line in answer.aiter_lines():
        if not line.startswith("data:"):
            continue
        seen.setdefault("ttft_s", time.monotonic() - started_s)
        data = line[5:].strip()
        if data == "[DONE]":
            seen["kind"] = "ok" if finished else "broken"
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            seen["error"] = data
            return
        if chunk.get("usage"):
            seen["tokens"] = chunk["usage"]["completion_tokens"]
        finished = finished or any(choice.get("finish_reason") for choice in chunk["choices"])


async def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All requests of all clients until the time is up or SIGTERM comes."""
    records: list[dict[str, Any]] = []
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    headers = {"authorization": f"Bearer {options.key}"} if options.key else {}

    async def one_client(index: int) -> None:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(
            base_url=options.url, headers=headers, timeout=120, limits=limits, trust_env=False
        ) as client:
            count = 0
            while not stopping.is_set():
                record = await ask(client, index * 100_000 + count, options)
                records.append(record)
                count += 1
                if record["kind"] != "ok":
                    await asyncio.sleep(0.2)

    clients = [asyncio.create_task(one_client(index)) for index in range(options.clients)]
    try:
        await asyncio.wait_for(stopping.wait(), options.seconds)
    except TimeoutError:
        stopping.set()
    await asyncio.gather(*clients)
    return records


def show(records: list[dict[str, Any]], good: list[str]) -> int:
    """Prints the counts per release; 1 when a good release broke a stream or answered no 2xx."""
    kinds: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in records:
        kinds[str(record["release"])][record["kind"]] += 1
    print(f"{'release':14} {'requests':>8} {'whole':>8} {'broken':>8} {'not 2xx':>8}")
    harmed = 0
    for release, counter in sorted(kinds.items()):
        total, whole, broken = sum(counter.values()), counter["ok"], counter["broken"]
        print(f"{release:14} {total:8} {whole:8} {broken:8} {total - whole - broken:8}")
        harmed += total - whole if release in good or release == "None" else 0
    others = collections.Counter(r["kind"] for r in records if r["kind"] not in ("ok", "broken"))
    if others:
        print("others:", ", ".join(f"{kind} x {count}" for kind, count in others.items()))
    print(f"good releases: {harmed} of {len(records)} requests broken, refused or unanswered")
    return 1 if harmed else 0


def main() -> None:
    """Runs the load, or shows a finished one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of the gateway")
    parser.add_argument("--key-file", type=pathlib.Path, help="file that holds the API key")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=pathlib.Path, help="where the records go")
    parser.add_argument("--show", type=pathlib.Path, help="show this file instead of running")
    parser.add_argument("--good", default="", help="releases that must not harm a request")
    options = parser.parse_args()
    good = [release for release in options.good.split(",") if release]
    if options.show:
        sys.exit(show(json.loads(options.show.read_text()), good))
    options.key = options.key_file.read_text().strip() if options.key_file else None
    records = asyncio.run(run(options))
    if options.json:
        options.json.write_text(json.dumps(records))
    else:
        sys.exit(show(records, good))


if __name__ == "__main__":
    main()
