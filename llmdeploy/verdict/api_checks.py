"""Acceptance of the API: shapes, streaming, stop strings, refusals, eight at once."""

from llmdeploy.edge import Event, Http
from llmdeploy.errors import Unreachable
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.verdict.target import (
    CHAT_PATH,
    REQUEST_TIMEOUT_S,
    Target,
    ask,
    ask_together,
    chat_body,
    post,
    read_answer,
)

PROMPT = "Write one sentence about the sea."
CONCURRENT = 8
"""Requests sent at once. Source: own choice, the least that shows batching."""
STOP_TRIES = 3
"""Source: own choice; another answer was met with two verifies at once on 2 cores."""
ANOTHER_ANSWER = "finished by length, stop string not in it"
TOO_LONG_CODE, TOO_LONG_WORDS = "context_length_exceeded", "context length"
"""OpenAI's code, which the embedded engine gives; others only say it in the message.

Source: vLLM 0.32 `renderers/params.py` and own runs, its code is 400; SGLang's words are those of
the signature catalogue.
"""


def finding(target: Target, check: str, status: Status, found: str, needed: str) -> Finding:
    """A finding of acceptance about the release, with the fix that fits all of them."""
    bad = status in (Status.FAIL, Status.UNKNOWN)
    fix = "see the release's log, then launch a corrected plan: llmdeploy logs" if bad else ""
    return Finding(
        check=f"accept.{check}",
        status=status,
        subject=target.release,
        found=found,
        needed=needed,
        fix=fix,
    )


def passed(ok: bool) -> Status:
    """PASS or FAIL."""
    return Status.PASS if ok else Status.FAIL


def models(target: Target, *, http: Http) -> Finding:
    """`/v1/models` names the served model."""
    response = http.request(
        "GET",
        f"{target.url}/v1/models",
        timeout_s=REQUEST_TIMEOUT_S,
        headers=dict(target.headers),
        socket_path=target.socket_path,
    )
    names = [m.get("id") for m in response.json().get("data", ())] if response.status == 200 else []
    found = f"{response.status}, models {', '.join(map(str, names)) or 'none'}"
    ok = target.served_name in names
    return finding(target, "models", passed(ok), found, f"200 with {target.served_name}")


def completions(target: Target, *, http: Http) -> Finding:
    """Chat and text completions answer in OpenAI's shape with token counts."""
    chat = ask(target, PROMPT, max_tokens=8, http=http)
    body = {"model": target.served_name, "prompt": "The sea is", "max_tokens": 8, "temperature": 0}
    text = read_answer(target, post(target, "/v1/completions", body, http=http))
    counts = [chat.output_tokens, text.output_tokens]
    finishes = {chat.finish, text.finish}
    ok = all(1 <= n <= 8 for n in counts) and finishes <= {"stop", "length"}
    found = f"{counts[0]} and {counts[1]} tokens, finished by {', '.join(sorted(finishes))}"
    return finding(target, "completions", passed(ok), found, "1 to 8 tokens, by stop or length")


def streaming(target: Target, *, http: Http) -> Finding:
    """A stream comes in pieces over time, ends with usage and `[DONE]`."""
    body = chat_body(
        target, PROMPT, max_tokens=16, stream=True, stream_options={"include_usage": True},
        ignore_eos=True,
    )  # fmt: skip
    events = tuple(
        http.stream(
            "POST",
            target.url + CHAT_PATH,
            timeout_s=REQUEST_TIMEOUT_S,
            json_body=body,
            headers=dict(target.headers),
            socket_path=target.socket_path,
        )
    )
    wrong = stream_fault(events)
    found = wrong or f"{len(events)} events, usage and [DONE]"
    needed = "at least 3 pieces over time, usage, [DONE] at the end"
    return finding(target, "streaming", passed(wrong is None), found, needed)


def stream_fault(events: tuple[Event, ...]) -> str | None:
    """What is wrong with a chat stream, in words; None where nothing is."""
    if not events or events[-1].data != "[DONE]":
        return f"{len(events)} events without [DONE] at the end"
    pieces = [e for e in events if '"content"' in e.data]
    if len(pieces) < 3:
        return f"{len(pieces)} pieces of text"
    if not any('"completion_tokens"' in e.data for e in events):
        return "no usage before [DONE]"
    if pieces[-1].at_s <= pieces[0].at_s:
        return "all pieces at one moment: something holds the stream back"
    return None


def stop_strings(target: Target, *, http: Http) -> Finding:
    """An answer ends before a stop string and says so.

    Beside other requests a sum may round another way and the second answer take another turn,
    without the string: that says nothing, and both are asked for again.
    """
    found = _stopped(target, http=http)
    tries = 1
    while found.status == Status.FAIL and found.found == ANOTHER_ANSWER and tries < STOP_TRIES:
        found = _stopped(target, http=http)
        tries += 1
    return found


def _stopped(target: Target, *, http: Http) -> Finding:
    whole = ask(target, PROMPT, max_tokens=24, http=http)
    words = whole.text.split()
    if len(words) < 4:
        text = f"{len(words)} words to stop in"
        return finding(target, "stop", Status.UNKNOWN, text, "an answer of at least 4 words")
    stop = words[len(words) // 2]
    short = ask(target, PROMPT, max_tokens=24, http=http, stop=[stop])
    ok = short.finish == "stop" and stop not in short.text
    found = f"finished by {short.finish}, stop string {'in' if stop in short.text else 'not in'} it"
    return finding(target, "stop", passed(ok), found, "finished by stop, without the stop string")


def too_long(target: Target, *, http: Http) -> Finding:
    """A prompt beyond the context is refused as such, and the next request is served."""
    prompt = "sea " * (target.max_model_len + 64)
    response = post(target, CHAT_PATH, chat_body(target, prompt, max_tokens=4), http=http)
    code, words = "none", ""
    if response.status == 400:
        error = response.json().get("error") or {}
        code, words = str(error.get("code")), str(error.get("message"))
    after = ask(target, PROMPT, max_tokens=2, http=http)
    named = code == TOO_LONG_CODE or TOO_LONG_WORDS in words
    said = f" ({words[:100]})" if words and not named else ""
    found = (
        f"{response.status} with code {code}{said}, then {after.output_tokens} tokens for a short "
        "one"
    )
    needed = f"400 with code {TOO_LONG_CODE} or words of the {TOO_LONG_WORDS}, then an answer"
    ok = named and after.output_tokens > 0
    return finding(target, "too_long", passed(ok), found, needed)


def bad_input(target: Target, *, http: Http) -> Finding:
    """Bodies that are no request are refused as the client's fault, in OpenAI's error shape."""
    bodies: tuple[object, ...] = (
        ["no", "object"],
        {"model": target.served_name},
        chat_body(target, PROMPT, max_tokens=-5),
    )
    responses = [post(target, CHAT_PATH, body, http=http) for body in bodies]
    shaped = [r.status for r in responses if "message" in (r.json().get("error") or {})]
    statuses = [r.status for r in responses]
    ok = len(shaped) == len(bodies) and all(400 <= s < 500 for s in statuses)
    found = f"{', '.join(map(str, statuses))}, {len(shaped)} with an error object"
    return finding(target, "bad_input", passed(ok), found, "three 4xx with an error object")


def concurrent(target: Target, *, http: Http) -> Finding:
    """Eight requests at once are all answered."""
    prompts = [f"{PROMPT} Number {i}." for i in range(CONCURRENT)]
    needed = f"{CONCURRENT} of {CONCURRENT} answered"
    try:
        answers = ask_together(target, prompts, max_tokens=16, http=http)
    except Unreachable as error:
        return finding(target, "concurrent", Status.FAIL, str(error), needed)
    full = sum(a.output_tokens > 0 for a in answers)
    found = f"{full} of {CONCURRENT} answered"
    return finding(target, "concurrent", passed(full == CONCURRENT), found, needed)
