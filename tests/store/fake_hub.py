"""A Hugging Face hub on loopback that serves one repository, and counts what it is asked."""

import hashlib
import http.server
import json
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves `files` as `owner/name`; a context that listens."""

    def __init__(self, name, files, *, token=None):
        self.name, self.files, self.token = name, dict(files), token
        self.asked, self.stated = [], {}
        """`stated`: hashes told instead of the true ones."""

    def __enter__(self):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                hub.answer(self, body=False)

            def do_GET(self):
                hub.answer(self, body=True)

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request, *, body):
        path = urllib.parse.unquote(urllib.parse.urlparse(request.path).path)
        self.asked.append(f"{request.command} {path}")
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            headers = {"x-error-code": "GatedRepo", "x-error-message": "Access is restricted"}
            return self.send(request, 403, b"", headers=headers, body=body)
        if path.startswith(f"/api/models/{self.name}/tree/"):
            return self.send(request, 200, json.dumps(self.tree()).encode(), body=body)
        if path.startswith(f"/api/models/{self.name}"):
            return self.send(request, 200, json.dumps(self.info()).encode(), body=body)
        start = f"/{self.name}/resolve/"
        file = path.removeprefix(start).partition("/")[2] if path.startswith(start) else ""
        if file in self.files:
            return self.send_file(request, file, body=body)
        code = {"x-error-code": "EntryNotFound" if path.startswith(start) else "RepoNotFound"}
        return self.send(request, 404, b"{}", headers=code, body=body)

    def sha256(self, name):
        return self.stated.get(name) or hashlib.sha256(self.files[name]).hexdigest()

    def tree(self):
        return [
            {"type": "file", "path": name, "size": len(content), "oid": self.oid(content),
             **({"lfs": {"oid": self.sha256(name), "size": len(content), "pointerSize": 130}}
                if name.endswith(".safetensors") else {})}
            for name, content in self.files.items()
        ]  # fmt: skip

    def info(self):
        return {
            "id": self.name, "modelId": self.name, "sha": COMMIT, "private": False, "gated": False,
            "disabled": False, "downloads": 0, "likes": 0, "tags": [],
            "siblings": [
                {"rfilename": name, "size": len(content), "blobId": self.oid(content),
                 **({"lfs": {"sha256": self.sha256(name), "size": len(content),
                             "pointerSize": 130}} if name.endswith(".safetensors") else {})}
                for name, content in self.files.items()
            ],
        }  # fmt: skip

    @staticmethod
    def oid(content):
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def send_file(self, request, name, *, body):
        content = self.files[name]
        lfs = name.endswith(".safetensors")
        tag = self.sha256(name) if lfs else self.oid(content)
        headers = {"etag": f'"{tag}"', "x-repo-commit": COMMIT}
        if lfs:
            headers |= {"x-linked-etag": f'"{tag}"', "x-linked-size": str(len(content))}
        first = int((request.headers.get("range") or "bytes=0-")[6:].split("-")[0] or 0)
        if first:
            headers["content-range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        self.send(request, 206 if first else 200, content[first:], headers=headers, body=body)

    def send(self, request, status, content, *, body, headers=None):
        request.send_response(status)
        for key, value in {"content-type": "application/json", **(headers or {})}.items():
            request.send_header(key, value)
        request.send_header("content-length", str(len(content)))
        request.end_headers()
        if body:
            request.wfile.write(content)
