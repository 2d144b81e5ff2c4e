"""The API process over HTTP, with workers that answer a prompt with its own tokens."""

import concurrent.futures
import json
import os
import signal
import socket

import httpx
import openai
import psutil
import pytest

from .served import serving
from .tokenizers_at_hand import write_model

pytestmark = pytest.mark.end_to_end

CHAT = "/v1/chat/completions"
ECHO = "<|user|>naïve 你好 🌍 a stop here<|assistant|>"
SAID = "naïve 你好 🌍 a stop here"


def options(folder, *more, step_s="0"):
    return (
        "--model", str(write_model(folder / "model")), "--served-name", "echo",
        "--kv-cache-tokens", "1024", "--max-model-len", "256", "--max-num-seqs", "4",
        "--max-queue", "2", "--batch-window-s", step_s, *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    with serving(folder, *options(folder, "--data-parallel", "2")) as served:
        yield served


@pytest.fixture
def slow(tmp_path):
    """One token takes 50 ms; debug log."""
    more = ("--log-level", "debug", "--drain-timeout-s", "10")
    with serving(tmp_path, *options(tmp_path, *more, step_s="0.05")) as served:
        yield served


def ask(text=SAID, **more):
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **more}


def data_of(text):
    return [line[6:] for line in text.splitlines() if line.startswith("data: ")]


def test_a_chat_answer_comes_whole(quick):
    answer = quick.post(CHAT, ask()).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {
        "role": "assistant", "content": SAID, "refusal": None,
    }  # fmt: skip
    assert answer["choices"][0]["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["prompt_tokens"] == usage["completion_tokens"] > 10
    assert usage["total_tokens"] == 2 * usage["prompt_tokens"]


def test_a_stream_has_the_same_text_then_usage_then_done(quick):
    data = data_of(quick.post(CHAT, ask(stream=True)).text)
    assert data.pop() == "[DONE]"
    chunks = [json.loads(item) for item in data]
    usage = chunks.pop()
    assert usage["choices"] == []
    assert usage["usage"] == quick.post(CHAT, ask()).json()["usage"]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == SAID
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_stop_string_ends_the_answer_unshown_streamed_or_not(quick):
    whole = quick.post(CHAT, ask(stop=["p he", "nowhere"])).json()["choices"][0]
    assert whole["message"]["content"] == "naïve 你好 🌍 a sto"
    assert whole["finish_reason"] == "stop"
    data = data_of(quick.post(CHAT, ask(stop=["p he", "nowhere"], stream=True)).text)
    chunks = [json.loads(item) for item in data[:-2]]
    shown = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert shown == "naïve 你好 🌍 a sto"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_max_tokens_ends_the_answer_with_length(quick):
    answer = quick.post(CHAT, ask(max_tokens=3)).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3


def test_n_answers_come_with_their_index(quick):
    answer = quick.post(CHAT, ask(n=3)).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert {c["message"]["content"] for c in answer["choices"]} == {SAID}
    chunks = [json.loads(d) for d in data_of(quick.post(CHAT, ask(n=2, stream=True)).text)[:-2]]
    for index in (0, 1):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert "".join(c["delta"].get("content", "") for c in mine) == SAID
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]


def test_text_completions_answer_every_prompt_in_order(quick):
    body = {"model": "echo", "prompt": ["the river", "a stone"], "max_tokens": 50}
    answer = quick.post("/v1/completions", body).json()
    assert answer["object"] == "text_completion"
    assert [c["text"] for c in answer["choices"]] == ["the river", "a stone"]
    assert [c["index"] for c in answer["choices"]] == [0, 1]


def test_log_probabilities_come_in_both_shapes(quick):
    chat = quick.post(CHAT, ask("the", logprobs=True, top_logprobs=2)).json()
    content = chat["choices"][0]["logprobs"]["content"]
    assert (
        b"".join(bytes(entry["bytes"]) for entry in content).decode() == "<|user|>the<|assistant|>"
    )
    assert [len(entry["top_logprobs"]) for entry in content] == [2] * len(content)
    body = {"model": "echo", "prompt": "the river", "logprobs": 1}
    text = quick.post("/v1/completions", body).json()["choices"][0]
    assert "".join(text["logprobs"]["tokens"]) == "the river"
    assert text["logprobs"]["text_offset"][0] == 0
    assert text["logprobs"]["token_logprobs"] == [-0.5] * len(text["logprobs"]["tokens"])


def test_openais_client_reads_answers_streams_and_errors(quick):
    with quick.client() as client:
        answer = client.chat.completions.create(**ask())
        assert answer.choices[0].message.content == SAID
        shown = ""
        with client.chat.completions.create(**ask(stream=True)) as stream:
            for chunk in stream:
                shown += chunk.choices[0].delta.content or "" if chunk.choices else ""
        assert shown == SAID
        assert chunk.usage.completion_tokens == answer.usage.completion_tokens
        assert [model.id for model in client.models.list()] == ["echo"]
        assert client.models.retrieve("echo").id == "echo"
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**ask(max_tokens=-5))
        assert (caught.value.param, caught.value.code) == ("max_tokens", "invalid_value")
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**{**ask(), "model": "other"})
        with pytest.raises(openai.InternalServerError, match="the drill failed"):
            client.chat.completions.create(**ask("fail"))


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (CHAT, b"{", 400, "invalid_json"),
        (CHAT, {**ask(), "temprature": 1}, 400, "unknown_parameter"),
        (CHAT, ask(tools=[{}]), 400, "unsupported_parameter"),
        (CHAT, ask("x" * 300), 400, "context_length_exceeded"),
        (CHAT, ask(max_tokens=300), 400, "context_length_exceeded"),
        (CHAT, ask("fail"), 500, "engine_error"),
        (CHAT, ask("fail", stream=True), 500, "engine_error"),
        (CHAT, {**ask(), "model": "gpt-4"}, 404, "model_not_found"),
        (CHAT, b"x" * (4 * 2**20 + 1), 413, "request_too_large"),
        ("/v1/completions", {"model": "echo", "prompt": ""}, 400, "invalid_value"),
        ("/v1/embeddings", {}, 404, "not_found"),
        ("/v1/models", {}, 405, "method_not_allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_refusal_has_openais_shape(quick, path, body, status, code):
    answer = quick.post(path, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(")")
    assert answer.headers["x-request-id"].startswith("req-")


def test_a_body_of_four_mebibytes_is_still_read(quick):
    error = quick.post(CHAT, ask("x" * (4 * 2**20 - 200))).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "found at least " in error["message"]


def test_the_gateways_request_id_comes_back(quick):
    answer = httpx.get(f"{quick.url}/health", headers={"x-request-id": "abc"})
    assert answer.headers["x-request-id"] == "abc"


def test_ready_tells_capacity_and_metrics_count(quick):
    ready = quick.get("/ready")
    assert (ready.status_code, ready.json()) == (
        200,
        {
            "phase": "ready",
            "kv_cache_tokens": 1024,
            "weights_bytes": 2000,
            "error": None,
            "fix": None,
        },
    )
    done = quick.metric('requests_total{code="200",finish="stop"}')
    tokens = quick.metric("generated_tokens_total")
    used = quick.post(CHAT, ask()).json()["usage"]["completion_tokens"]
    assert quick.metric('requests_total{code="200",finish="stop"}') == done + 1
    assert quick.metric("generated_tokens_total") == tokens + used
    assert quick.metric("ttft_seconds_count") > 0
    assert quick.metric("queue_seconds_count") > 0
    assert quick.metric("resident_bytes") > 10**7


def test_two_workers_share_the_requests(quick):
    def one(number):
        return quick.post(CHAT, ask(f"the river {number}")).json()["choices"][0]["message"][
            "content"
        ]

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(one, range(20))) == [f"the river {n}" for n in range(20)]


def test_only_the_given_address_is_bound(quick):
    process = psutil.Process(quick.process.pid)
    listening = [c.laddr.ip for c in process.net_connections() if c.status == "LISTEN"]
    assert listening == ["127.0.0.1"]


def hold(served, threads, count):
    """`count` requests that never get an answer, in their own threads."""
    body = ask("hang")
    futures = [threads.submit(served.post, CHAT, body) for _ in range(count)]
    served.wait_for(lambda: served.metric("running") + served.metric("waiting") >= count)
    return futures


def test_a_full_queue_answers_429_and_comes_back(slow):
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        held = hold(slow, threads, 6)
        answer = slow.post(CHAT, ask())
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["code"] == "queue_full"
        assert slow.metric('rejections_total{reason="queue_full"}') == 1
        assert slow.terminate() == 0
        assert {future.result().status_code for future in held} == {503}


def test_a_client_that_leaves_a_stream_frees_its_place(slow):
    with (
        httpx.Client(timeout=30) as client,
        client.stream("POST", slow.url + CHAT, json=ask(stream=True)) as stream,
    ):
        lines = stream.iter_lines()  # kept: its end would close the stream
        assert next(lines).startswith("data: ")
        assert slow.metric("running") == 1
    slow.wait_for(lambda: slow.metric("running") == 0)
    slow.wait_for(lambda: slow.metric('requests_total{code="499",finish="cancelled"}') == 1)


def test_a_client_that_leaves_before_its_answer_frees_its_place(slow):
    address = slow.url.removeprefix("http://").split(":")
    body = json.dumps(ask("hang")).encode()
    with socket.create_connection((address[0], int(address[1]))) as client:
        client.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
                       % (CHAT.encode(), len(body), body))  # fmt: skip
        slow.wait_for(lambda: slow.metric("running") == 1)
    slow.wait_for(lambda: slow.metric("running") == 0)
    assert slow.metric('requests_total{code="499",finish="cancelled"}') == 1


def test_a_stop_string_cancels_the_rest_in_the_worker(slow):
    slow.post(CHAT, ask(stop="naï"))
    slow.wait_for(lambda: slow.metric("running") == 0)
    assert slow.metric("steps_total") < 8 + 10 + 12  # warm-up, prompt up to the stop, slack


def test_draining_finishes_what_runs_and_takes_nothing_new(slow):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        running = threads.submit(slow.post, CHAT, ask(stream=True))
        slow.wait_for(lambda: slow.metric("running") == 1)
        slow.process.send_signal(signal.SIGTERM)
        slow.wait_for(lambda: slow.get("/ready").json()["phase"] == "draining")
        refused = slow.post(CHAT, ask())
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "draining"
        assert data_of(running.result().text)[-1] == "[DONE]"
    assert slow.process.wait(timeout=30) == 0
    assert slow.events()[-1]["event"] == "ended"


def test_draining_ends_what_does_not_finish_in_time(tmp_path):
    more = options(tmp_path, "--drain-timeout-s", "0.2")
    with (
        serving(tmp_path, *more) as served,
        concurrent.futures.ThreadPoolExecutor(1) as threads,
    ):
        (held,) = hold(served, threads, 1)
        assert served.terminate() == 0
        assert held.result().json()["error"]["code"] == "draining"
        assert "drain_timeout" in [event["event"] for event in served.events()]


def test_a_request_that_takes_too_long_is_answered_504(tmp_path):
    more = options(tmp_path, "--request-timeout-s", "0.3")
    with serving(tmp_path, *more) as served:
        answer = served.post(CHAT, ask("hang"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "request_timeout")
        served.wait_for(lambda: served.metric("running") == 0)


def test_a_stream_that_takes_too_long_ends_with_an_error_and_not_with_done(tmp_path):
    more = options(tmp_path, "--request-timeout-s", "0.5", step_s="0.1")
    with serving(tmp_path, *more) as served:
        text, whole = read_until_cut(served, ask(stream=True))
        assert json.loads(data_of(text)[-1])["error"]["code"] == "request_timeout"
        assert not whole


def read_until_cut(served, body):
    """What came of a stream, and whether HTTP says that it is whole."""
    text = ""
    with (
        httpx.Client(timeout=30) as client,
        client.stream("POST", served.url + CHAT, json=body) as stream,
    ):
        try:
            for part in stream.iter_text():
                text += part
        except httpx.RemoteProtocolError:
            return text, False
    return text, True


def test_a_worker_that_dies_fails_its_requests_and_ends_the_engine(slow):
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        whole = threads.submit(slow.post, CHAT, ask("hang"))
        stream = threads.submit(read_until_cut, slow, ask(stream=True))
        slow.wait_for(lambda: slow.metric("running") == 2 and slow.metric("steps_total") > 10)
        (worker,) = [p for p in psutil.Process(slow.process.pid).children() if "spawn_main" in
                     str(p.cmdline())]  # fmt: skip
        os.kill(worker.pid, signal.SIGKILL)
        answer = whole.result()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_failed")
        assert "was killed by SIGKILL" in answer.json()["error"]["message"]
        text, was_whole = stream.result()
        assert "was killed by SIGKILL" in json.loads(data_of(text)[-1])["error"]["message"]
        assert not was_whole
        ready = slow.get("/ready")
        assert (ready.status_code, ready.json()["phase"]) == (503, "failed")
        assert slow.get("/health").status_code == 503
    assert slow.process.wait(timeout=30) == 1


def test_a_worker_that_crashes_on_a_request_ends_the_engine(slow):
    assert slow.post(CHAT, ask("crash")).status_code == 503
    assert slow.process.wait(timeout=30) == 1
    (failed,) = [event for event in slow.events() if event["event"] == "failed"]
    assert failed["reason"] == "worker 0 ended with exit code 9"


def test_a_worker_that_cannot_start_tells_why_on_ready_and_in_the_log(tmp_path):
    more = options(tmp_path)
    more = tuple("too-large" if value == "echo" else value for value in more)
    with serving(tmp_path, *more, phase="failed") as served:
        ready = served.get("/ready").json()
        assert (ready["error"], ready["fix"]) == (
            "needs 9 GiB, 1 GiB is free", "choose a smaller model",
        )  # fmt: skip
        assert served.process.wait(timeout=30) == 3
        failed = [event for event in served.events() if event["event"] == "failed"]
        assert [event["fix"] for event in failed] == ["choose a smaller model"]


def test_workers_die_with_a_killed_engine(slow):
    children = psutil.Process(slow.process.pid).children(recursive=True)
    slow.process.kill()
    slow.process.wait()
    gone, alive = psutil.wait_procs(children, timeout=20)
    assert (len(gone), alive) == (len(children), [])


def test_the_log_is_json_and_holds_no_prompt(slow):
    slow.post(CHAT, ask("secret words"))
    slow.post(CHAT, ask("secret words", max_tokens=-1))
    slow.terminate()
    lines = slow.log.read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert {"listening", "worker", "ready", "request", "draining", "ended"} <= set(events)
    assert "secret" not in slow.log.read_text()


def test_a_taken_port_is_named_with_a_fix(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        more = options(tmp_path, "--port", str(port))
        refused = pytest.raises(AssertionError, match=f"--port {port}: cannot listen there")
        with refused, serving(tmp_path, *more):
            raise RuntimeError("it listens")
