"""Who may do what at the gateway, and what is written down of it: keys, limits, logs, metrics."""

import itertools
import json
import pathlib
import re
import ssl
import subprocess
import sys
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from llmdeploy.errors import Unreachable
from llmdeploy.gateway import keys
from llmdeploy.gateway.apply import apply, update
from llmdeploy.gateway.change import with_weights
from llmdeploy.gateway.filters import CLOCK_SKEW_S
from llmdeploy.observe.requests import Ending
from llmdeploy.release import journal

from ..fakes import FakeClock
from .gateway_bed import CHAT, NEW, OLD, wait

pytestmark = pytest.mark.end_to_end
ONE = {"max_tokens": 1}


def test_a_request_without_a_valid_key_is_answered_401(bed):
    stranger = Ed25519PrivateKey.generate()
    claims = {"iss": "llmdeploy", "sub": "tester", "jti": "1", "exp": time.time() + 60}
    ours = "llmdeploy/chat"
    forged = jwt.encode({**claims, "aud": ours}, stranger, algorithm="EdDSA")
    unsigned = jwt.encode({**claims, "aud": ours}, None, algorithm="none")
    long_ago = FakeClock(time_s=time.time() - CLOCK_SKEW_S - 61)
    expired = bed.issue("tester", expires_s=60, clock=long_ago)
    cases = {
        "none": "",
        "forged": forged,
        "unsigned": unsigned,
        "expired": expired,
        "no token": "sk-123",
        "cut": bed.key[:-8],
    }
    answers = {name: bed.ask(ONE, key=key) for name, key in cases.items()}
    assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(cases, 401)
    for answer in answers.values():
        error = answer.json()["error"]
        assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")
    assert bed.ask(ONE).status == 200


def test_a_key_of_another_service_is_answered_403(bed):
    other = keys.add("tester", service="other", expires_s=60, **bed.edges)
    assert bed.ask(ONE, key=other.token.get_secret_value()).status == 403


def test_a_key_in_the_query_is_no_key(bed):
    assert bed.ask(ONE, key="", path=f"{CHAT}?access_token={bed.key}").status == 401


def test_a_revoked_key_is_answered_403_and_others_go_on(bed):
    key = bed.issue("bob")
    assert bed.ask(ONE, key=key).status == 200
    keys.revoke(bed.last_record.id, **bed.edges)
    bed.refresh_keys()
    refused = bed.ask(ONE, key=key)
    assert (refused.status, refused.json()["error"]["code"]) == (403, "forbidden")
    assert bed.ask(ONE).status == 200


def llmdeploy(bed, *words):
    argv = [sys.executable, "-m", "llmdeploy", *words]
    argv += ["--state-root", str(pathlib.Path(bed.layout.root).parent)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_the_command_adds_limits_and_revokes_keys_of_a_running_gateway(bed):
    journal.append("test", **bed.edges)  # a service is what has a journal
    added = llmdeploy(bed, "keys", "add", "chat", "--client", "ivo", "--rate", "2/s", "--yes")
    assert added.returncode == 0, added.stderr
    key = added.stdout.strip()
    assert "in effect" in added.stderr
    assert key not in added.stderr
    statuses = [bed.ask(ONE, key=key).status for _ in range(8)]
    assert statuses[0] == 200
    assert 429 in statuses
    listed = json.loads(llmdeploy(bed, "keys", "list", "chat", "--json").stdout)
    mine = next(record for record in listed if record["client"] == "ivo")
    revoked = llmdeploy(bed, "keys", "revoke", "chat", mine["id"], "--yes")
    assert (revoked.returncode, revoked.stdout) == (0, f"{mine['id']}: revoked, in effect\n")
    assert bed.ask(ONE, key=key).status == 403


def test_a_second_signing_key_is_accepted_within_a_second_and_the_first_stays(bed):
    second = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True) | {"kid": "second"}
    public = {name: value for name, value in second.items() if name not in ("d", "key_ops")}
    claims = {
        "iss": "llmdeploy", "aud": "llmdeploy/chat", "sub": "carol", "jti": "2",
        "exp": time.time() + 60,
    }  # fmt: skip
    key = jwt.encode(claims, OKPAlgorithm.from_jwk(second), "EdDSA", headers={"kid": "second"})
    assert bed.ask(ONE, key=key).status == 401
    start_s = time.monotonic()
    update(
        lambda s: s.model_copy(update={"public_keys": (*s.public_keys, json.dumps(public))}),
        **bed.edges,
    )
    wait(lambda: bed.ask(ONE, key=key).status == 200)
    print(f"accepted after {time.monotonic() - start_s:.3f} s")
    assert bed.ask(ONE).status == 200


def test_who_a_client_is_comes_from_its_key_alone(bed):
    headers = {"x-client-id": "root", "x-llmdeploy-release": NEW, "x-envoy-max-retries": "9"}
    seen = bed.ask(path="/v1/echo", headers=headers).json()["headers"]
    assert seen["x-client-id"] == "tester"
    assert "authorization" not in seen
    assert not {"x-llmdeploy-release", "x-envoy-max-retries", "x-envoy-internal"} & seen.keys()


def test_clients_cannot_change_time_outs_by_headers(bed):
    headers = {"x-envoy-upstream-rq-timeout-ms": "20"}
    assert bed.ask({"max_tokens": 1, "ttft_ms": 200}, headers=headers).status == 200


def test_the_rate_limit_answers_429_with_retry_after(bed):
    bed.reset(key_rate_per_s=3.0)
    answers = [bed.ask(ONE, key=key) for key in [bed.issue("dora")] for _ in range(12)]
    statuses = [answer.status for answer in answers]
    assert statuses[:3] == [200, 200, 200]
    assert set(statuses[3:]) <= {200, 429}
    limited = [answer for answer in answers if answer.status == 429]
    assert limited
    assert {answer.headers["retry-after"] for answer in limited} == {"1"}
    assert {a.json()["error"]["code"] for a in limited} == {"rate_limit_exceeded"}
    assert bed.ask(ONE, key=bed.issue("emil")).status == 200  # each client has its own bucket


def test_a_client_can_have_its_own_rate(bed):
    key = bed.issue("frida", rate_per_s=2.0)
    bed.refresh_keys()
    assert 429 in [bed.ask(ONE, key=key).status for _ in range(10)]
    assert {bed.ask(ONE).status for _ in range(10)} == {200}


def test_moving_weights_does_not_fill_the_buckets_again(bed):
    bed.reset(key_rate_per_s=0.05)
    key = bed.issue("gerda")
    assert [bed.ask(ONE, key=key).status for _ in range(2)] == [200, 429]
    bed.set({OLD: 0.5, NEW: 0.5})
    assert bed.ask(ONE, key=key).status == 429


def test_a_body_above_the_limit_is_answered_413(bed):
    small = bed.ask({"max_tokens": 1, "pad": "x" * 90_000})
    large = bed.ask({"max_tokens": 1, "pad": "x" * 110_000})
    assert (small.status, large.status) == (200, 413)
    assert large.json()["error"]["code"] == "request_too_large"


def test_only_listed_networks_may_connect(bed):
    bed.reset(allow=("10.0.0.0/8",))
    assert bed.ask(ONE, headers={"x-forwarded-for": "10.1.1.1"}).status == 403


def test_without_a_live_release_the_answer_is_503_and_the_gateway_healthy(bed):
    state = bed.state()
    none_live = with_weights(state, {}).model_copy(update={"fallback": None})
    apply(none_live, layout=bed.layout, shell=bed.shell)
    bed.confirm()
    answer = bed.ask(ONE)
    assert (answer.status, answer.json()["error"]["message"]) == (503, "no release is live")
    health = bed.ask(key="", path="/healthz")
    assert (health.status, health.body) == (200, b"ok\n")


def test_unknown_paths_are_answered_404(bed):
    answer = bed.ask(path="/admin")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "not_found")


def test_a_request_that_takes_too_long_is_answered_504(bed):
    bed.reset(request_timeout_s=0.5)
    since_s = time.time()
    answer = bed.ask({"max_tokens": 1, "ttft_ms": 1500})
    assert (answer.status, answer.json()["error"]["code"]) == (504, "timeout")
    assert [r.ending for r in bed.records(since_s)] == [Ending.FAILED]


def test_the_dark_listener_picks_the_release_and_marks_its_requests(bed):
    since_s = time.time()
    for release in (OLD, NEW):
        answer = bed.ask_dark(release, body={"max_tokens": 2})
        assert (answer.status, answer.headers["x-release"]) == (200, release)
    assert bed.ask_dark("cccc00000000", body=ONE).status == 404
    assert bed.ask_dark(None, body=ONE).status == 404
    bed.kill(bed.of(NEW)[0])
    assert bed.ask_dark(NEW, body=ONE).status == 503  # nobody else answers for it
    records = bed.records(since_s)
    assert [(r.release, r.probe) for r in records] == [(OLD, True), (NEW, True), (NEW, True)]
    assert records[-1].ending == Ending.FAILED


def test_sockets_are_for_the_owner_alone(bed):
    for path in (bed.layout.admin_socket, bed.layout.dark_socket):
        assert pathlib.Path(path).stat().st_mode & 0o777 == 0o600


def test_a_client_that_leaves_is_no_failure(bed):
    since_s = time.time()
    with pytest.raises(Unreachable):
        bed.http.request(
            "POST", bed.url + CHAT, timeout_s=0.3, json_body={"max_tokens": 1, "ttft_ms": 1000},
            headers={"authorization": f"Bearer {bed.key}"},
        )  # fmt: skip
    assert [r.ending for r in bed.records(since_s)] == [Ending.CANCELLED]


def test_no_prompt_key_or_token_is_written_down(bed):
    canary = "canary-4711"
    body = {"max_tokens": 3, "messages": [{"role": "user", "content": canary}]}
    assert bed.ask(body, path=f"{CHAT}?q={canary}").status == 200
    assert bed.ask({**body, "stream": True}).status == 200
    assert bed.ask(body, key="", path=f"/v1/{bed.key}/{canary}").status == 401
    bed.ask(body, key=bed.issue("hans"))
    bed.records()
    root = pathlib.Path(bed.layout.root)
    texts = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert len(texts[pathlib.Path(bed.layout.access_log)].splitlines()) >= 4
    signature = bed.key.rsplit(".", 1)[1].encode()
    assert [p for p, text in texts.items() if canary.encode() in text] == []
    assert [p for p, text in texts.items() if signature in text or b"Bearer ey" in text] == []
    private = json.loads((root / "keys/signing.json").read_text())["d"].encode()
    assert [p.name for p, text in texts.items() if private in text] == ["signing.json"]
    assert (root / "keys/signing.json").stat().st_mode & 0o777 == 0o600


def test_tokens_are_counted_exactly_and_ttft_is_told_by_release(bed):
    time.sleep(FLUSH_S)  # so that no answer of an earlier test is still to be counted
    since_s = time.time()
    before = prometheus(bed)
    bed.set({OLD: 0.5, NEW: 0.5})
    bed.ask_upstream(bed.of(NEW)[0], "/set?delay_ms=250")
    with bed.load("--max-tokens", 23, "--itl-ms", 2, clients=8, seconds=3) as load:
        figures = load.result(stop=False)
    assert figures["ok"] == figures["requests"]
    for _ in range(3):
        bed.ask({"max_tokens": 11})  # whole answers are counted, too
    expected = figures["tokens"] + 33
    records = bed.records(since_s)
    assert sum(r.completion_tokens for r in records) == expected == 23 * figures["ok"] + 33
    after = wait(lambda: flushed(bed, sum(before.get(k, 0) for k in TTFT) + figures["ok"]))
    name = "envoy_llmdeploy_completion_tokens"
    counted = [after[k] - before.get(k, 0) for k in after if k.startswith(f"{name}{{")]
    assert sum(counted) == expected
    streamed = [r for r in records if r.ttft_s is not None]
    assert len(streamed) == figures["ok"]
    means = {
        release: sum(r.ttft_s for r in streamed if r.release == release)
        / max(1, sum(r.release == release for r in streamed))
        for release in (OLD, NEW)
    }
    print("mean ttft by release, s:", means)
    assert means[NEW] - means[OLD] > 0.2
    for release in (OLD, NEW):
        label = f'{{release="{release}",content_type="text/event-stream"}}'
        stem = "envoy_llmdeploy_ttft_ms"
        count = after[f"{stem}_count{label}"] - before.get(f"{stem}_count{label}", 0)
        total_ms = after[f"{stem}_sum{label}"] - before.get(f"{stem}_sum{label}", 0)
        assert count == sum(r.release == release for r in streamed) > 0
        assert total_ms / count / 1e3 == pytest.approx(means[release], rel=0.1, abs=2e-3)


def test_a_stream_reaches_the_client_token_by_token(bed):
    body = {"max_tokens": 5, "itl_ms": 100, "stream": True}
    events = list(
        bed.http.stream(
            "POST", bed.url + CHAT, timeout_s=10, json_body=body,
            headers={"authorization": f"Bearer {bed.key}"},
        )
    )  # fmt: skip
    assert events[-1].data == "[DONE]"
    steps_s = [b.at_s - a.at_s for a, b in itertools.pairwise(events[:4])]
    assert all(step_s > 0.05 for step_s in steps_s)


def test_tls_serves_the_given_certificate(opened, tmp_path):
    bed, certificate, key = opened, tmp_path / "tls.crt", tmp_path / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", certificate], check=True, capture_output=True,
    )  # fmt: skip
    bed.reset(tls_certificate=str(certificate), tls_key=str(key))
    plain = ssl.get_server_certificate(("127.0.0.1", bed.port), ca_certs=str(certificate))
    assert re.sub(r"\s", "", plain) == re.sub(r"\s", "", certificate.read_text())
    with pytest.raises(Unreachable):
        bed.ask(ONE)  # no plain text any more


FLUSH_S = 6.0
"""Envoy merges its histograms every 5 s."""

TTFT = [
    f'envoy_llmdeploy_ttft_ms_count{{release="{r}",content_type="text/event-stream"}}'
    for r in (OLD, NEW)
]


def flushed(bed, streamed):
    """The metrics once that many streamed answers are in the histograms, None before."""
    found = prometheus(bed)
    return found if sum(found.get(name, 0) for name in TTFT) == streamed else None


def prometheus(bed):
    lines = bed.admin("/stats/prometheus").splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("envoy_llmdeploy"))
    return {name: float(value) for name, _, value in pairs}
