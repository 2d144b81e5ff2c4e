import json
import os

import pytest

from llmdeploy.edge import Response
from llmdeploy.edge.local import LocalShell
from llmdeploy.observe.access_log import (
    BLOCK_BYTES,
    KEEP,
    Cursor,
    log_files,
    read_new,
    read_requests,
    read_since,
    rotate,
)
from llmdeploy.observe.requests import Ending, parse_access_line
from llmdeploy.release.layout import ServiceLayout
from tests.fakes import FakeHttp

START_S = 1_800_000_000.0


def line(number=0, **changes):
    """A line as Envoy 1.40 wrote it for a streamed answer, with changes."""
    fields = {
        "at_s": f"{START_S + number:.6f}", "attempts": 1, "bytes_in": 30, "bytes_out": 606,
        "client": "alice", "completion_tokens": 3, "content_type": "text/event-stream",
        "details": "via_upstream", "duration_ms": 28, "duration_us": 28171, "flags": "-",
        "id": f"id-{number}", "method": "POST", "path": "/v1/chat/completions",
        "pick": "bbbb-first", "probe": False, "prompt_tokens": 7, "served_by": "bbbb",
        "source": "127.0.0.1", "status": 200, "tls": None, "ttft_us": 12171,
        "upstream": "127.0.0.1:36787", "user_agent": "curl/7.88.1",
    }  # fmt: skip
    return json.dumps({**fields, **changes})


def test_a_streamed_answer_is_read_with_its_times_and_tokens():
    record = parse_access_line(line())
    assert (record.id, record.started_s, record.release) == ("id-0", START_S, "bbbb")
    assert (record.served_by, record.ending, record.status) == ("bbbb", Ending.OK, 200)
    assert (record.duration_s, record.ttft_s) == (0.028171, 0.012171)
    assert (record.prompt_tokens, record.completion_tokens, record.probe) == (7, 3, False)
    assert record.tpot_s == pytest.approx(0.016 / 2)  # (28.171 - 12.171) ms over 3 - 1 tokens


def test_a_whole_answer_shows_no_first_token():
    record = parse_access_line(line(content_type="application/json"))
    assert (record.ttft_s, record.tpot_s, record.duration_s) == (None, None, 0.028171)


BROKEN_AFTER_START = {
    "flags": "UPE", "details": "upstream_reset_after_response_started{protocol_error}",
    "completion_tokens": None, "duration_us": None,
}  # fmt: skip
UNREACHED = {
    "status": 503, "flags": "URX,UF", "ttft_us": None, "completion_tokens": None,
    "content_type": "application/json", "attempts": 4,
    "details": "upstream_reset_before_response_started{remote_connection_failure}",
}  # fmt: skip
LOCAL = {
    "served_by": None, "ttft_us": None, "attempts": 0, "content_type": "application/json",
    "completion_tokens": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "ending", "served_by"),
    [
        ({}, Ending.OK, "bbbb"),
        ({"served_by": "aaaa", "attempts": 2}, Ending.OK, "aaaa"),
        (BROKEN_AFTER_START, Ending.FAILED, "bbbb"),
        (BROKEN_AFTER_START | {"flags": "UC"}, Ending.FAILED, "bbbb"),
        ({"flags": "SI", "details": "stream_idle_timeout"}, Ending.FAILED, "bbbb"),
        ({"status": 500, "ttft_us": None}, Ending.FAILED, "bbbb"),
        ({"status": 500, "flags": "DC"}, Ending.FAILED, "bbbb"),
        (UNREACHED, Ending.FAILED, None),
        (UNREACHED | {"status": 429}, Ending.FAILED, None),
        (LOCAL | {"status": 503, "flags": "UH", "details": "no_healthy"}, Ending.FAILED, None),
        (
            LOCAL | {"status": 504, "flags": "UT", "details": "response_timeout"},
            Ending.FAILED,
            None,
        ),
        (LOCAL | {"status": 429, "flags": "UO", "details": "overflow"}, Ending.REJECTED, None),
        (LOCAL | {"status": 429, "flags": "RL", "details": "limited"}, Ending.REJECTED, None),
        (LOCAL | {"status": 401, "details": "jwt_authn_access_denied"}, Ending.REJECTED, None),
        (LOCAL | {"status": 413, "details": "request_payload_too_large"}, Ending.REJECTED, None),
        ({"status": 400, "completion_tokens": None}, Ending.REJECTED, "bbbb"),
        ({"flags": "DC", "details": "downstream_remote_disconnect"}, Ending.CANCELLED, "bbbb"),
        (LOCAL | {"status": 0, "flags": "DC", "details": "downstream"}, Ending.CANCELLED, None),
    ],
)
def test_how_a_request_ended_follows_from_status_and_flags(changes, ending, served_by):
    record = parse_access_line(line(**changes))
    assert (record.ending, record.served_by, record.release) == (ending, served_by, "bbbb")


def test_a_request_through_the_dark_listener_is_a_probe():
    record = parse_access_line(line(probe=True, pick="bbbb"))
    assert (record.probe, record.release) == (True, "bbbb")


@pytest.mark.parametrize(
    "text", ["", "{", line()[:-20], "7", "null", "[]", line(pick=None), '{"pick": "bbbb"}']
)
def test_what_is_no_request_for_a_release_is_no_record(text):
    assert parse_access_line(text) is None


@pytest.fixture
def layout(tmp_path):
    (tmp_path / "gateway").mkdir()
    return ServiceLayout(root=str(tmp_path))


SHELL = LocalShell()


def append(layout, *lines, end="\n"):
    with open(layout.access_log, "a") as log:
        log.write("".join(f"{text}\n" for text in lines[:-1]) + (lines[-1] + end if lines else ""))


def ids(records):
    return [record.id for record in records]


def test_reading_on_gives_each_line_once(layout):
    append(layout, line(1), line(2))
    fresh = read_new(layout, cursor=Cursor(inode=0, offset_bytes=0), shell=SHELL)
    assert ids(fresh.records) == ["id-1", "id-2"]
    append(layout, line(3))
    further = read_new(layout, cursor=fresh.cursor, shell=SHELL)
    assert ids(further.records) == ["id-3"]
    assert read_new(layout, cursor=further.cursor, shell=SHELL).records == ()


def test_a_line_that_is_being_written_is_read_when_it_is_whole(layout):
    text = line(2)
    append(layout, line(1), text[:40], end="")
    fresh = read_new(layout, cursor=Cursor(inode=0, offset_bytes=0), shell=SHELL)
    assert ids(fresh.records) == ["id-1"]
    append(layout, text[40:])
    assert ids(read_new(layout, cursor=fresh.cursor, shell=SHELL).records) == ["id-2"]


def test_without_a_log_there_are_no_records(layout):
    fresh = read_since(layout, since_s=0.0, shell=SHELL)
    assert fresh.records == ()
    append(layout, line(1))
    assert ids(read_new(layout, cursor=fresh.cursor, shell=SHELL).records) == ["id-1"]


def test_requests_since_a_time_are_those_that_started_then(layout):
    append(layout, *(line(n) for n in range(10)))
    assert ids(read_requests(layout, since_s=START_S + 7, shell=SHELL)) == ["id-7", "id-8", "id-9"]


class CountingShell(LocalShell):
    """Counts the bytes that are read."""

    read_bytes = 0

    def read_from(self, path, *, offset_bytes, limit_bytes=None):
        found = super().read_from(path, offset_bytes=offset_bytes, limit_bytes=limit_bytes)
        self.read_bytes += len(found)
        return found


def test_only_the_end_of_a_long_log_is_read(layout):
    append(layout, *(line(n) for n in range(40_000)))
    shell = CountingShell()
    fresh = read_since(layout, since_s=START_S + 39_990, shell=shell)
    assert ids(fresh.records) == [f"id-{n}" for n in range(39_990, 40_000)]
    size_bytes = os.path.getsize(layout.access_log)
    assert shell.read_bytes <= 2 * BLOCK_BYTES < size_bytes / 20
    append(layout, line(40_000))
    assert ids(read_new(layout, cursor=fresh.cursor, shell=shell).records) == ["id-40000"]


def test_a_long_request_that_ended_late_is_found_behind_later_ones(layout):
    slow = line(1, duration_us=5_000_000_000)  # started first, ended at 5001 s
    append(layout, *(line(n) for n in range(2, 5000)), slow, *(line(n) for n in range(5001, 5003)))
    assert "id-1" in ids(read_requests(layout, since_s=START_S + 1, shell=SHELL))


def turned(layout):
    http = FakeHttp(on_request=lambda method, url, body: Response(status=200, headers={}, body=b""))
    return rotate(layout, limit_bytes=10, shell=SHELL, http=http), http.asked


def test_a_full_log_is_put_aside_and_envoy_told_to_open_a_new_one(layout):
    append(layout, line(1))
    assert turned(layout) == (True, [("POST", "http://admin/reopen_logs")])
    assert turned(layout) == (False, [])  # nothing written since
    assert [os.path.basename(f.path) for f in log_files(layout, shell=SHELL)] == ["access.jsonl.1"]


def test_a_small_log_stays(layout):
    append(layout, line(1))
    assert not rotate(layout, shell=SHELL, http=FakeHttp())


def test_reading_on_goes_through_a_rotation(layout):
    append(layout, line(1))
    fresh = read_new(layout, cursor=Cursor(inode=0, offset_bytes=0), shell=SHELL)
    append(layout, line(2))
    turned(layout)
    with open(f"{layout.access_log}.1", "a") as old:  # Envoy has not opened the new one yet
        old.write(line(3) + "\n")
    between = read_new(layout, cursor=fresh.cursor, shell=SHELL)
    assert ids(between.records) == ["id-2", "id-3"]
    append(layout, line(4))
    assert ids(read_new(layout, cursor=between.cursor, shell=SHELL).records) == ["id-4"]
    assert ids(read_requests(layout, since_s=START_S + 2, shell=SHELL)) == ["id-2", "id-3", "id-4"]


def test_only_so_many_former_logs_are_kept(layout):
    for number in range(KEEP + 3):
        append(layout, line(number))
        turned(layout)
    names = sorted(os.path.basename(f.path) for f in log_files(layout, shell=SHELL))
    assert names == [f"access.jsonl.{n}" for n in range(1, KEEP + 1)]
    assert ids(read_requests(layout, since_s=0.0, shell=SHELL)) == ["id-3", "id-4", "id-5"]
