"""First requests to an engine on its own port: warm-up in the plan's shapes, then the proof."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from llmdeploy.edge import Http, Response
from llmdeploy.errors import Refused
from llmdeploy.plan.document import Plan, Replica
from llmdeploy.release.state import Endpoint

PROBE_TOKENS = 16
NEEDED_TOKENS = 8
"""A real answer has at least so many tokens."""
_SPARE_TOKENS = 16
"""Room for a prompt that comes out longer than its words."""
_WARM_TOKENS = 8
_DRILL_ATTEMPTS = 5
"""A drill's fault must show later, to the judge, not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A warm-up round: so many requests together, each of that many tokens in and out."""

    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the probe brought back."""

    prompt_tokens: int
    completion_tokens: int
    characters: int


def shapes(plan: Plan, replica: Replica) -> tuple[Shape, ...]:
    """The plan's mean request on every worker, then its long one: each path is taken once."""
    serve = replica.serve
    most_tokens = max(1, serve.max_model_len - _WARM_TOKENS - _SPARE_TOKENS)
    mean = min(round(plan.workload.input_tokens.mean), most_tokens)
    long = min(round(plan.workload.input_tokens.p95), most_tokens)
    together = min(serve.data_parallel, serve.max_num_seqs)
    return (
        Shape(requests=together, prompt_tokens=mean, output_tokens=_WARM_TOKENS),
        Shape(requests=1, prompt_tokens=long, output_tokens=_WARM_TOKENS),
    )


def warm(plan: Plan, replica: Replica, endpoint: Endpoint, *, http: Http) -> int:
    """How many warm-up requests the replica answered; Refused when it failed one."""
    answered = 0
    for shape in shapes(plan, replica):
        bodies = [
            {
                "model": replica.serve.served_name,
                # " a" is one token in byte-pair vocabularies; the number keeps prompts apart
                "prompt": f"{number}" + " a" * (shape.prompt_tokens - 1),
                "max_tokens": shape.output_tokens,
                "ignore_eos": True,
            }
            for number in range(shape.requests)
        ]
        with ThreadPoolExecutor(max_workers=len(bodies)) as threads:
            tasks = [
                threads.submit(_ask, "/v1/completions", body, replica, endpoint, http)
                for body in bodies
            ]
            answered += sum(task.result() is not None for task in tasks)
    return answered


def probe(replica: Replica, endpoint: Endpoint, *, http: Http) -> Answered:
    """A real chat completion; Refused unless it has text and enough tokens."""
    body = {
        "model": replica.serve.served_name,
        "messages": [{"role": "user", "content": "Count from one to ten in words."}],
        "max_tokens": PROBE_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    answer = _ask("/v1/chat/completions", body, replica, endpoint, http).json()
    try:
        text = answer["choices"][0]["message"]["content"] or ""
        usage = answer["usage"]
        found = Answered(
            prompt_tokens=int(usage["prompt_tokens"]),
            completion_tokens=int(usage["completion_tokens"]),
            characters=len(text.strip()),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Refused(
            f"{replica.name}: the probe's answer has no {error}, needed an OpenAI chat completion",
            fix="see the engine's log: llmdeploy logs NAME --release ID",
        ) from error
    if found.completion_tokens < NEEDED_TOKENS or found.characters == 0:
        raise Refused(
            f"{replica.name}: the probe brought {found.completion_tokens} tokens and "
            f"{found.characters} characters, needed at least {NEEDED_TOKENS} tokens with text",
            fix="check the model: llmdeploy models verify ID",
        )
    return found


def _ask(
    path: str, body: dict[str, object], replica: Replica, endpoint: Endpoint, http: Http
) -> Response:
    url = f"http://{endpoint.address}:{endpoint.port}{path}"
    timeout_s = replica.serve.request_timeout_s + 5
    for _ in range(_DRILL_ATTEMPTS if replica.serve.drill else 1):
        answer = http.request("POST", url, timeout_s=timeout_s, json_body=body)
        if answer.status == 200:
            return answer
    raise Refused(
        f"{replica.name}: {path}: answered {answer.status}, needed 200: "
        f"{answer.body[:300].decode(errors='replace')}",
        fix="see the engine's log: llmdeploy logs NAME --release ID",
    )
