"""A thrifty load client: streams chat answers over bare sockets, to take little of shared cores."""

import asyncio
import json
import random
import time
import urllib.parse
from dataclasses import dataclass

WORDS = (
    "river", "stone", "garden", "lantern", "window", "bridge", "winter", "copper", "silver",
    "thunder", "meadow", "harbor",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One answered request."""

    began_s: float
    chunk_times_s: tuple[float, ...]
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one run at one concurrency measured."""

    concurrency: int
    requests: int
    failed: int
    prompt_tokens: float
    answer_tokens: float
    """Means per request."""
    output_tokens_per_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    itl_p50_s: float
    itl_p95_s: float
    itl_max_s: float
    other_cores: float = 0.0
    """Cores that other programs used meanwhile: above 0.2 the row is not to be trusted."""


def prompt(seed: int, words: int) -> str:
    """A text that no other seed shares beyond its first words."""
    draw = random.Random(seed)
    said = " ".join(draw.choice(WORDS) for _ in range(words))
    return f"{said}. Write a very long and detailed story with all of these words."


async def _ask(url: str, body: bytes) -> Timed:
    parts = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        head = (
            f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        began_s = time.perf_counter()
        writer.write(head.encode() + body)
        status = (await reader.readline()).split()
        if status[1:2] != [b"200"]:
            raise RuntimeError(f"answered {b' '.join(status)!r}: {(await reader.read(2000))!r}")
        return await _read(reader, began_s)
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, began_s: float) -> Timed:
    times, usage = [], None
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        if event["choices"] and event["choices"][0]["delta"].get("content"):
            times.append(time.perf_counter())
    if not times:
        raise RuntimeError("the stream had no text")
    return Timed(
        began_s=began_s,
        chunk_times_s=tuple(times),
        prompt_tokens=usage["prompt_tokens"] if usage else 0,
        answer_tokens=usage["completion_tokens"] if usage else len(times),
    )


async def _run(url: str, bodies: list[bytes], concurrency: int) -> tuple[list[Timed], float]:
    waiting = iter(bodies)
    answers: list[Timed] = []

    async def client() -> None:
        for body in waiting:
            try:
                answers.append(await _ask(url, body))
            except (OSError, RuntimeError, ValueError) as error:
                print(f"  failed: {error}")

    began_s = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    return answers, time.perf_counter() - began_s


def measure(
    url: str, model: str, *, concurrency: int, requests: int, words: int, tokens: int, seed: int
) -> Load:
    """Runs `requests` streams, `concurrency` at a time."""
    bodies = [
        json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": prompt(seed + i, words)}],
                "max_tokens": tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        for i in range(requests)
    ]
    answers, wall_s = asyncio.run(_run(url, bodies, concurrency))
    if not answers:
        raise SystemExit(f"error: {url}: no request was answered")
    ttft = sorted(a.chunk_times_s[0] - a.began_s for a in answers)
    itl = sorted(
        later - earlier
        for a in answers
        for earlier, later in zip(a.chunk_times_s, a.chunk_times_s[1:], strict=False)
    ) or [0.0]
    total = sum(a.answer_tokens for a in answers)
    return Load(
        concurrency=concurrency,
        requests=len(answers),
        failed=requests - len(answers),
        prompt_tokens=sum(a.prompt_tokens for a in answers) / len(answers),
        answer_tokens=total / len(answers),
        output_tokens_per_s=total / wall_s,
        ttft_p50_s=_quantile(ttft, 0.5),
        ttft_p95_s=_quantile(ttft, 0.95),
        itl_p50_s=_quantile(itl, 0.5),
        itl_p95_s=_quantile(itl, 0.95),
        itl_max_s=itl[-1],
    )


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
