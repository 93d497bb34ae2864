"""Shipped fakes for tests and examples: a clock that stands still, small corpora of real records, a provider on loopback.

- A `Clock` moves only when it is told to, or by a stated tick at each reading, so durations in a test are exact.
- `conversation` makes Transitions as an importer would, from texts written in the test. `index_of` indexes them through
  the same path as imported ones, each conversation as a lineage and a family of its own, all of them fit.
- A `LoopbackServer` speaks OpenAI's HTTP interface on 127.0.0.1, gives equal requests equal answers, counts what it would
  have billed, and fails in the ways that it was told to, one a request.

Not covered: these records cite a source that exists nowhere, so no span of them can be opened; the server's vectors mean
nothing beyond shared words. Nothing imports this file.
"""

import json
from collections.abc import Callable, Iterable
from hashlib import shake_256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Literal, NamedTuple, Self

from experiential_lab.evidence.trace import STOP_MARKERS, Action, ObservationKind, Transition
from experiential_lab.records import Span, digest_of, short_id
from experiential_lab.retrieval.index import Index, build
from experiential_lab.retrieval.views import Facts, View, entry_of, snapshot_of


class Clock:
    """A monotonic clock in nanoseconds that stands still."""

    def __init__(self, now_ns: int = 0, *, tick_ns: int = 0) -> None:
        self.now_ns = now_ns
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        """The time; the next reading is `tick_ns` later."""
        now, self.now_ns = self.now_ns, self.now_ns + self.tick_ns
        return now

    def advance(self, duration_ns: int) -> None:
        """Let `duration_ns` pass."""
        self.now_ns += duration_ns


def conversation(
    task: str, *exchanges: tuple[str | Action, str], kind: ObservationKind = "user_reply"
) -> tuple[Transition, ...]:
    """The transitions of one conversation: each action with its observation, in order.

    An observation with a stop marker is terminal, one that is not the last is not, and of the last it is unknown.
    """
    trace_id, recent, made = short_id(task), None, []
    for ordinal, (action, observation) in enumerate(exchanges):
        action = Action(text=action) if isinstance(action, str) else action
        stopped = any(marker in observation for marker in STOP_MARKERS)
        made.append(
            Transition(
                transition_id=f"{trace_id}/{ordinal:04d}",
                trace_id=trace_id,
                task=task,
                recent=recent,
                action=action,
                observation=observation,
                terminal=True if stopped else False if ordinal + 1 < len(exchanges) else None,
                pairing="user_reply" if kind == "user_reply" else "explicit_id",
                observation_kind=kind,
                observation_source="simulated_user" if kind == "user_reply" else "environment",
                action_span=_span(task, 2 * ordinal, action.text or action.arguments or ""),
                observation_span=_span(task, 2 * ordinal + 1, observation),
            )
        )
        recent = observation
    return tuple(made)


def _span(task: str, record: int, text: str) -> Span:
    source = digest_of(task.encode())
    return Span(source=source, offset=record, size=1, end=len(text), quote=digest_of(text.encode()))


def index_of(*conversations: Iterable[Transition]) -> Index:
    """An index of these conversations, all of them fit."""
    entries = [entry_of(each, lineages=(each.trace_id,), path="tiny") for one in conversations for each in one]
    facts = {entry.entry_id: Facts(split="fit", family=entry.lineages[0]) for entry in entries}
    return build(View(snapshot_of(entries, facts)))


Fault = Literal[
    "status_429", "status_500", "silence", "drop", "html", "cut_json",
    "dimension", "nan", "infinite", "zero", "model", "count", "disorder", "same_index", "no_usage",
]  # fmt: skip
"""How one request fails: by its status, by no answer until the server stops, by a connection that ends half-way, by a page
of HTML or half a document with status 200, or by an answer that is well-formed and not what was asked for."""

_UNBILLED = ("status_429", "status_500", "html")


class _Reply(NamedTuple):
    body: dict[str, Any]
    tokens: int = 0
    status: int = 200


class LoopbackServer:
    """A provider on a free port of 127.0.0.1, in a thread of its own: `with LoopbackServer() as server:`.

    `faults` holds one item for each request to come, None for a good answer; it may be changed at any time.
    """

    def __init__(self, *, dimension: int = 8, model: str = "loopback-embedding") -> None:
        self.dimension = dimension
        self.model = model
        self.faults: list[Fault | None] = []
        self.requests = 0
        self.billed_tokens = 0
        self.asked: list[dict[str, Any]] = []
        """The body of each request, in order."""
        self._routes: dict[str, Callable[[dict[str, Any], Fault | None], _Reply]] = {"/v1/embeddings": self._embeddings}
        self._lock = Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._stopped = Lock()

    @property
    def base_url(self) -> str:
        """What a client takes as its address."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._stopped.acquire()
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.release()  # lets go who waits in silence
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _answer(self, path: str, body: dict[str, Any]) -> tuple[_Reply, Fault | None]:
        """What to send, with the fault of this request; counted and billed."""
        with self._lock:
            self.requests += 1
            self.asked.append(body)
            fault = self.faults.pop(0) if self.faults else None
        if fault in ("status_429", "status_500"):
            reply = _error(int(fault[7:]), "the server was told to fail")
        elif path not in self._routes:
            reply = _error(404, f"no such path: {path}")
        else:
            reply = self._routes[path](body, fault)
        with self._lock:
            self.billed_tokens += 0 if fault in _UNBILLED else reply.tokens
        return reply, fault

    def _embeddings(self, body: dict[str, Any], fault: Fault | None) -> _Reply:
        texts = body.get("input")
        if body.get("model") != self.model:
            return _error(404, f"no such model: {body.get('model')}")
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            return _error(400, "input is not a list of texts, or one of them is empty")
        data = [
            {"object": "embedding", "index": number, "embedding": _direction(text, self.dimension)}
            for number, text in enumerate(texts)
        ]
        _spoil(data, fault)
        tokens = sum(-(-len(text.encode()) // 4) for text in texts)
        answer: dict[str, Any] = {
            "object": "list",
            "model": "another-model" if fault == "model" else self.model,
            "data": data,
        }
        if fault != "no_usage":
            answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
        return _Reply(answer, tokens)


def _error(status: int, message: str) -> _Reply:
    return _Reply({"error": {"message": message, "type": "loopback", "code": str(status)}}, status=status)


def _direction(text: str, dimension: int) -> list[float]:
    """A sum over words, so that texts which share words are near each other."""
    words = [shake_256(word.encode()).digest(dimension) for word in text.split() or [text]]
    return [sum(word[place] - 127.5 for word in words) / 128 for place in range(dimension)]


def _spoil(data: list[dict[str, Any]], fault: Fault | None) -> None:
    match fault:
        case "dimension":
            data[-1]["embedding"].pop()
        case "nan" | "infinite" | "zero":
            wrong = {"nan": float("nan"), "infinite": float("inf"), "zero": 0.0}[fault]
            data[-1]["embedding"] = [wrong] * len(data[-1]["embedding"])
        case "count":
            data.pop()
        case "disorder":
            data.reverse()
        case "same_index":
            data[-1]["index"] = 0


def _handler(server: LoopbackServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply, fault = server._answer(self.path, body)
            data, kind = json.dumps(reply.body).encode(), "application/json"
            if fault == "silence":
                with server._stopped:
                    return
            if fault == "html":
                data, kind = b"<html><body>Please sign in.</body></html>", "text/html"
            if fault == "cut_json":
                data = data[: len(data) // 2]
            self.send_response(reply.status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if fault == "drop" else data)

        def log_message(self, format: str, *args: object) -> None:
            pass  # a test's output is its own

    return Handler
