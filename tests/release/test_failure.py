"""The cause of a failed start is the first one, not the last line of the log."""

import json

from llmdeploy.release.failure import Reason, first_cause, plain, traceback_end

CHAIN = """\
loading
Traceback (most recent call last):
  File "load.py", line 8, in load
ValueError: the third shard is cut off

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "main.py", line 3, in main
RuntimeError: engine core failed
worker group is going down
"""


def cause(log: str, **given) -> Reason:
    values = {"stated": None, "ended": None, "diagnose": lambda text: None}
    return first_cause(log, **(values | given))


def test_what_the_engine_said_itself_wins():
    stated = Reason(what="needs 9 blocks, found 3", fix="give it 9")
    assert cause(CHAIN, stated=stated, diagnose=lambda text: "other") == stated


def test_an_error_in_the_engines_json_log_brings_its_fix():
    line = json.dumps({"level": "error", "event": "failed", "reason": "no room", "fix": "less"})
    assert cause(f"start\n{line}\nend\n") == Reason(what="no room", fix="less")


def test_a_printed_error_brings_its_hint():
    log = "warming\nerror: /m/config.json: found nothing, needed a model\n\nhint: add it\n"
    found = cause(log, ended="exit status 2")
    assert found == Reason(what="/m/config.json: found nothing, needed a model", fix="add it")


def test_a_known_failure_is_better_than_a_traceback():
    assert cause(CHAIN, diagnose=lambda text: "a shard is cut off").what == "a shard is cut off"


def test_the_first_traceback_of_a_chain_names_the_cause():
    found = cause(CHAIN, ended="exit status 1")
    assert found.what == (
        "the process ended (exit status 1); ValueError: the third shard is cut off"
    )
    assert traceback_end("all is well") is None


def test_a_traceback_within_a_json_line_is_read_like_any_other():
    line = json.dumps({"event": "step failed", "level": "info", "traceback": CHAIN})
    assert cause(line).what == "ValueError: the third shard is cut off"
    assert "step failed" in plain(line)


def test_without_any_cause_the_exit_and_last_line_are_shown():
    assert cause("one\ntwo\n", ended="terminated by SIGABRT").what == (
        "the process ended (terminated by SIGABRT); last log line: two"
    )
    assert cause("").what == "its log is empty"


def test_a_killed_engine_points_to_the_kernels_memory_killer():
    assert "dmesg" in cause("one\n", ended="terminated by SIGKILL").fix
