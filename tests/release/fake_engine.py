"""A small HTTP program that starts, answers and fails like an engine, in seconds.

    python fake_engine.py BEHAVIOUR.json --host H --port P --served-name N --kv-cache-tokens K …

BEHAVIOUR.json: phase_s (time of each phase), fail_at (a phase) and how (told, traceback, killed,
exit, hung), kv_cache_tokens (instead of the option's), answer_tokens, child (start a child process
that ignores SIGTERM).
"""

# ruff: noqa: TID251, T201 - a program of its own, on the other side of the process seam

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PHASES = ("starting", "comm_ready", "loaded", "kv_ready", "ready")


class Engine:
    """The state that the HTTP side shows while the start goes on."""

    def __init__(self, behaviour, options):
        self.behaviour, self.options = behaviour, options
        self.phase, self.error = "starting", None

    def climb(self):
        for phase in PHASES[1:]:
            time.sleep(self.behaviour.get("phase_s", 0.1))
            if self.behaviour.get("fail_at") == phase:
                self.fail(self.behaviour.get("how", "told"))
            self.phase = phase
            print(json.dumps({"level": "info", "event": "phase", "phase": phase}), flush=True)

    def fail(self, how):
        if how == "hung":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "told":
            self.phase, self.error = "failed", "needs 9 blocks, found 3"
            time.sleep(1)
        if how == "traceback":
            print("Traceback (most recent call last):\n  File 'x.py', line 1, in load\n"
                  "ValueError: the third shard is cut off\n\nDuring handling of the above "
                  "exception, another exception occurred:\n\nTraceback (most recent call last):\n"
                  "  File 'y.py', line 9, in main\nRuntimeError: engine core failed\n"
                  "worker group is going down", flush=True)  # fmt: skip
        os._exit(1)

    def told(self):
        ready = self.phase in ("kv_ready", "ready")
        kv_cache_tokens = self.behaviour.get("kv_cache_tokens", self.options.kv_cache_tokens)
        return {
            "phase": self.phase,
            "kv_cache_tokens": kv_cache_tokens if ready else 0,
            "weights_bytes": 1000 if self.phase not in PHASES[:2] else 0,
            "error": self.error,
            "fix": "give it 9 blocks" if self.error else None,
        }


def handler(engine):
    """The request handler of that engine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            told = engine.told()
            self.answer(200 if told["phase"] == "ready" else 503, told)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if engine.behaviour.get("fail_at") == "request":
                engine.fail(engine.behaviour["how"])
            tokens = min(body["max_tokens"], engine.behaviour.get("answer_tokens", 99))
            text = "one " * tokens
            choice = {"index": 0, "finish_reason": "length", "text": text}
            choice["message"] = {"role": "assistant", "content": text}
            usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
            model = engine.options.served_name
            self.answer(200, {"id": "x", "model": model, "choices": [choice], "usage": usage})

        def answer(self, status, tree):
            content = json.dumps(tree).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            """Says nothing."""

    return Handler


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour", type=pathlib.Path)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-name", required=True)
    parser.add_argument("--kv-cache-tokens", type=int, required=True)
    options, _ = parser.parse_known_args(argv)
    behaviour = json.loads(options.behaviour.read_text())
    if behaviour.get("child"):
        ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", ignore])
    engine = Engine(behaviour, options)
    server = ThreadingHTTPServer((options.host, options.port), handler(engine))
    server.daemon_threads = True
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=engine.climb, daemon=True).start()
    server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
