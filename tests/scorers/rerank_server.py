"""Rerank servers on a real socket: they speak the schemas of Cohere and TEI, and misbehave when told to."""

import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def relevance(query, text):
    """A logit: words in common count, length tells texts apart."""
    return 2.0 * len(set(query.split()) & set(text.split())) - 0.01 * len(text) - 1.0


class RerankServer(ThreadingHTTPServer):
    """`mischief` is done to the next answers, one each; `habit` to all; both are functions of the handler."""

    daemon_threads = True
    request_queue_size = 50

    def __init__(self, host="127.0.0.1"):
        super().__init__((host, 0), _Handler)
        self.url = f"http://{host}:{self.server_port}"
        self.mischief, self.habit = [], None
        self.change = lambda results: results
        self.info = {"model_id": "some/reranker", "model_sha": None, "max_client_batch_size": 32}
        self.word_limit, self.key, self.pause = 100, None, 0.0
        self.bodies, self.authorizations, self.clients = [], [], set()
        self.running = self.peak = 0
        self.lock, self.closing = threading.Lock(), threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if self._is_let_in():
            has_info = self.path == "/info" and self.server.info is not None
            self.answer(200 if has_info else 404, self.server.info if has_info else {"error": "not found"})

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.clients.add(self.client_address)
            server.running += 1
            server.peak = max(server.peak, server.running)
            act = server.mischief.pop(0) if server.mischief else server.habit
        try:
            time.sleep(server.pause)
            if self._is_let_in():
                act(self) if act else self._rerank(body)
        finally:
            with server.lock:
                server.running -= 1

    def answer(self, status, content, headers=()):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _is_let_in(self):
        given, key = self.headers.get("Authorization"), self.server.key
        self.server.authorizations.append(given)
        if key is None or given == f"Bearer {key}":
            return True
        self.answer(401, {"message": f"invalid api token {given}"})
        return False

    def _rerank(self, body):
        dialects = {"/v2/rerank": self._cohere, "/v1/rerank": self._cohere, "/rerank": self._tei}
        dialects.get(self.path, lambda body: self.answer(404, {"message": f"no route {self.path}"}))(body)

    def _cohere(self, body):
        if not all(text.strip() for text in body["documents"]):
            return self.answer(400, {"message": "invalid request: all documents must have text"})
        found = [1 / (1 + math.exp(-relevance(body["query"], text))) for text in body["documents"]]
        results = [{"index": index, "relevance_score": score} for index, score in enumerate(found)]
        results.sort(key=lambda result: -result["relevance_score"])
        self.answer(200, {"id": "1", "results": self.server.change(results[: body["top_n"]]), "meta": {}})

    def _tei(self, body):
        texts, limit = body["texts"], (self.server.info or {}).get("max_client_batch_size", 32)
        if len(texts) > limit:
            message = f"batch size {len(texts)} > maximum allowed batch size {limit}"
            return self.answer(413, {"error": message, "error_type": "Validation"})
        longest = max(len(text.split()) for text in texts)
        if longest > self.server.word_limit and not body["truncate"]:
            message = f"`inputs` must have less than {self.server.word_limit} tokens. Given: {longest}"
            return self.answer(413, {"error": message, "error_type": "Validation"})
        cut = [" ".join(text.split()[: self.server.word_limit]) if body["truncate"] else text for text in texts]
        found = [relevance(body["query"], text) for text in cut]
        assert body["raw_scores"] is True
        results = [{"index": index, "score": score} for index, score in enumerate(found)]
        results.sort(key=lambda result: -result["score"])
        self.answer(200, self.server.change(results))


def says(status, content=b"", **headers):
    named = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
    return lambda handler: handler.answer(status, content, named)


def stalls(handler):
    handler.server.closing.wait()


def cuts_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'[{"index": 0,')
    handler.close_connection = True


def hangs_up(handler):
    handler.close_connection = True


def drips_body(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.closing.wait(0.02):
        handler.wfile.write(b" ")


def drips_headers(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not handler.server.closing.wait(0.02):
        handler.wfile.write(b"x")
