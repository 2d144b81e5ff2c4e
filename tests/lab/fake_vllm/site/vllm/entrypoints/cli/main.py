"""Pretends to be `vllm serve`: forms a group over its rendezvous port, logs, answers, and fails.

$FAKE_VLLM (/etc/fake_vllm.json) says how: {"fail_at": "group|load|kv", "message": TEXT,
"freeze": true, "pause_s": 1.0}.
"""

import argparse
import json
import mmap
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BEHAVIOUR = pathlib.Path(os.environ.get("FAKE_VLLM", "/etc/fake_vllm.json"))
KV_TOKENS = 2**28 // (4 * 64 * 2 * 30 * 2 // 2)
STATE = {"running": 0, "tokens": 0}


def behaviour() -> dict:
    return json.loads(BEHAVIOUR.read_text()) if BEHAVIOUR.exists() else {}


def say(text: str) -> None:
    print(f"INFO 01-01 00:00:00 [fake.py:1] {text}", flush=True)


def reach(step: str) -> None:
    wanted = behaviour()
    if wanted.get("fail_at") == step:
        print(wanted.get("message", f"RuntimeError: failed at {step}"), flush=True)
        sys.exit(1)
    time.sleep(wanted.get("pause_s", 0.0))


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/metrics":
            text = (
                f"vllm:num_requests_running {STATE['running']}\n"
                f"vllm:generation_tokens_total {STATE['tokens']}\n"
            )
            return self.reply(text.encode())
        if self.path == "/v1/models":
            return self.reply(json.dumps({"data": [{"id": self.server.served}]}).encode())
        return self.reply(b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        STATE["running"] += 1
        while behaviour().get("freeze"):
            time.sleep(0.2)
        tokens = body.get("max_tokens", 8)
        STATE["tokens"] += tokens
        STATE["running"] -= 1
        words = "one two three four " * 4
        self.reply(
            json.dumps(
                {
                    "id": "x", "object": "chat.completion", "created": 0,
                    "model": body["model"],
                    "choices": [
                        {"index": 0, "message": {"role": "assistant", "content": words},
                         "text": words, "finish_reason": "length"}
                    ],
                    "usage": {"prompt_tokens": 8, "completion_tokens": tokens,
                              "total_tokens": 8 + tokens},
                }
            ).encode()
        )  # fmt: skip

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def meet(options: argparse.Namespace) -> list[socket.socket]:
    """Every rank reaches the head's rendezvous port; like torch's store, it waits for it."""
    place = (options.master_addr, options.master_port)
    if options.node_rank == 0:
        server = socket.create_server(place)
        return [server, *(server.accept()[0] for _ in range(options.nnodes - 1))]
    while True:
        try:
            return [socket.create_connection(place, 10)]
        except ConnectionRefusedError:
            time.sleep(0.2)


def agree(options: argparse.Namespace, plugs: list[socket.socket]) -> None:
    """The head serves once every rank has its cache; where one is gone it waits for its keeper."""
    if options.node_rank:
        plugs[0].sendall(b"k")
    elif not all(plug.recv(1) for plug in plugs[1:]):
        time.sleep(3600)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--host", "--served-model-name", "--master-addr"):
        parser.add_argument(name)
    for name in ("--port", "--nnodes", "--node-rank", "--master-port"):
        parser.add_argument(name, type=int, default=0)
    options, _ = parser.parse_known_args(sys.argv[3:])
    path = pathlib.Path("/dev/shm", f"psm_fake_{os.getpid()}")
    path.write_bytes(bytes(4096))
    with path.open("r+b") as segment:
        held = mmap.mmap(segment.fileno(), 4096)
    subprocess.Popen(["sleep", "86400"], start_new_session=True)
    say("world_size=2 rank=? distributed_init_method")
    reach("group")
    plugs = meet(options)
    say("rank 0 in world size 2 is assigned as DP rank 0")
    reach("load")
    say("Loading weights took 0.10 seconds")
    reach("kv")
    agree(options, plugs)
    if options.node_rank == 0:
        say(f"CPU KV cache size: {KV_TOKENS:,} tokens, Maximum concurrency 4.00x")
        server = ThreadingHTTPServer((options.host, options.port), Answers)
        server.served = options.served_model_name
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say("Application startup complete.")
    while True:
        time.sleep(60)
    del held, plugs


if __name__ == "__main__":
    main()
