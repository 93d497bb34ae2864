"""Bounded text sessions: a chain of grounded turns in memory that never does more than it says.

- A step takes one assistant text message in OpenAI shape, or its text, and gives a user message and a terminal flag.
  Everything else is refused before retrieval: another role, calls, audio, content that is no Unicode text, white space,
  and any further key that holds more than null or an empty list. Text is data: nothing in it is interpreted.
- Limits fail, they never truncate. Before retrieval a step needs room for two messages, for its own bytes and for one
  byte of an answer. An answer that is empty, too long, or too large for the rest is refused whole, and was paid for.
- A step that raises changed nothing: transcript, expiry and counts are as before. Its error says what it cost.
- Expiry is refreshed by accepted steps only. It is noticed at the next call on any session of the same `Sessions`; there
  is no timer. A step in flight is never evicted.
- What is gone leaves its id and the reason, and no text; an id older than the kept ones is `unknown`.
- Nothing is written. `export` gives bytes, and their first record says that they are generated.

| state | step | fork | transcript, gauges, export | end | idle for too long |
|---|---|---|---|---|---|
| open | answered; a terminal answer: terminal | another open session | given | ended | expired |
| in flight | refused: `busy` | another, of what was accepted | given | ended; the answer is refused: `ended` | stays |
| terminal, ended, expired | refused: the state is the code | refused | refused | stays as it is | stays as it is |
| forgotten | refused: `unknown` | refused | refused | stays as it is | stays as it is |

The order of refusals in a step is: state, message, busy, capacity, support, answer. One lock guards a
`Sessions`, and neither retrieval nor the world model runs under it.

Not covered: tools, other modalities, and what a prediction is worth.
"""

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypedDict, get_args

import msgspec

from experiential_lab.records import FREE, Cost, LabError, Record, Unverifiable, UsageError, canonical_json
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import IndexView
from experiential_lab.retrieval.receipts import DispositionReceipt, RetrievalReceipt, UseReceipt
from experiential_lab.retrieval.refusal import Certificate, check_certificate, refused
from experiential_lab.retrieval.support import Label
from experiential_lab.retrieval.views import Exclusion
from experiential_lab.world.models import Message, WorldModel
from experiential_lab.world.turn import COMPONENTS, REFUSE_BELOW, Component, Setting, Taken, Turn, take_turn

Code = Literal[
    "unsupported_role",
    "tool_call",
    "function_call",
    "audio",
    "not_text",
    "empty",
    "message_limit",
    "transcript_bytes",
    "observation_bytes",
    "observation_empty",
    "output_length",
    "task_bytes",
    "context_bytes",
    "session_limit",
    "busy",
    "expired",
    "ended",
    "terminal",
    "unknown",
    "no_support",
    "no_precedent",
    "provider",
]
Gone = Literal["expired", "ended", "terminal"]
State = Literal["open", "in_flight", "expired", "ended", "terminal", "unknown"]

CODES: tuple[Code, ...] = get_args(Code)
NOT_FROM_A_PERSON = ("tool_error", "tool_result", "user_rejection")
CHARACTERS_PER_TOKEN = 4  # an estimate that needs no tokenizer


class Limits(Record, kw_only=True):
    """What a `Sessions` holds at most. Each is a number that may be reached and not passed."""

    active_sessions: int = 256
    idle_ns: int = 3_600_000_000_000
    """A session that is not stepped for so long is expired."""
    messages: int = 128
    """Of one transcript; both roles count."""
    transcript_bytes: int = 1 << 20
    """UTF-8 bytes of the messages of one transcript; task and context have limits of their own."""
    observation_bytes: int = 64 << 10
    task_bytes: int = 64 << 10
    context_bytes: int = 256 << 10
    output_tokens: int = 1024
    """Of one observation: its characters / 4, rounded up."""
    tombstones: int = 4096
    """How many of the sessions that are gone are told apart."""


class Spent(TypedDict):
    """What one component took in one step, ready for JSON. None is unknown, never zero."""

    usage: dict[str, int] | None
    cost_nusd: int | None
    basis: str
    latency_ns: int


class SessionError(LabError):
    """A session, or one of its steps, was refused. Nothing changed."""

    exit_code = 4

    def __init__(self, code: Code, message: str, *, limit: int | None = None, actual: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.limit = limit
        """None: the code names no limit."""
        self.actual = actual
        self.economics: dict[Component, Spent] = {}
        """What the step cost. Empty: the call was no step."""
        self.turn: Turn | None = None
        """The refused or failed turn, for a record of it. None: nothing was retrieved."""
        if code == "provider":
            self.exit_code = 6


class Gauge(Record, kw_only=True):
    """How much of one limit is used."""

    name: str
    used: int
    limit: int
    unit: str


class Step(NamedTuple):
    """What an accepted step gives back."""

    message: dict[str, str]
    """In OpenAI shape: `{"role": "user", "content": ...}`."""
    terminal: bool
    turn: Turn
    hits: Hits
    uses: tuple[UseReceipt | DispositionReceipt, ...]
    economics: dict[Component, Spent]

    @property
    def support(self) -> Label:
        return self.turn.support

    @property
    def receipt(self) -> RetrievalReceipt:
        return self.hits.receipt

    @property
    def attributes(self) -> dict[str, str]:
        """What a span or a log row says of the retrieval of this step."""
        return self.hits.attributes


def text_exclusions() -> tuple[Exclusion, ...]:
    """What the view of a text session leaves out: a person does not answer in the words of a tool."""
    return tuple(Exclusion(level="observation_kind", value=kind) for kind in NOT_FROM_A_PERSON)


def read_message(message: str | Mapping[str, object]) -> str:
    """The text of one assistant message in OpenAI shape; a text stands for itself.

    Raises:
        SessionError: it is anything else; the code says what.
    """
    if isinstance(message, str):
        return _text(message)
    if not isinstance(message, Mapping):
        raise SessionError("not_text", f"a message is a text or an object with role and content, got {_kind(message)}")
    if message.get("role") != "assistant":
        raise SessionError("unsupported_role", f"role is {_clip(message.get('role'))}; a step takes role 'assistant'")
    for key, code in _CARRIERS.items():
        if not _is_nothing(message.get(key)):
            raise SessionError(code, f"the message carries {key}; a text session takes text alone")
    for key, value in message.items():
        if key not in _READ and not _is_nothing(value):
            raise SessionError("not_text", f"the message carries {_clip(key)}; give role and content alone")
    return _text(message.get("content"))


_CARRIERS: dict[str, Code] = {"tool_calls": "tool_call", "function_call": "function_call", "audio": "audio"}
_READ = ("role", "content", *_CARRIERS)


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and not value)


def _text(content: object, what: str = "content") -> str:
    if not isinstance(content, str):
        raise SessionError("not_text", f"{what} is {_kind(content)}, it must be one text")
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise SessionError("not_text", f"{what} is no Unicode text: a lone surrogate at {error.start}") from error
    if not content.strip():
        raise SessionError("empty", f"{what} has {len(content)} characters, all of them white space; say something")
    return content


def _kind(value: object) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def _clip(value: object) -> str:
    """A foreign value in an error: on one line, and short."""
    return ascii(value)[:40]


@dataclass(slots=True)
class _Open:
    """All that is held of one open session; it goes as a whole."""

    setting: Setting
    expires_ns: int
    transcript: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    size_bytes: int = 0
    in_flight: bool = False


class Sessions:
    """All sessions that share one set of limits. `clock` is monotonic, in nanoseconds; `new_id` gives ids that nobody can guess."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        clock: Callable[[], int],
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        """Raises:
        UsageError: a limit is below 1.
        """
        self.limits = limits or Limits()
        for name, value in msgspec.structs.asdict(self.limits).items():
            if value < 1:
                raise UsageError(f"the limit {name} is {value}, it must be at least 1")
        self._clock = clock
        self._new_id = new_id
        self._lock = Lock()
        self._open: dict[str, _Open] = {}
        self._gone: OrderedDict[str, Gone] = OrderedDict()

    def open(
        self,
        task: str,
        *,
        context: str | None = None,
        view: IndexView,
        world_model: WorldModel,
        k: int = 5,
        refuse_below: Label | Certificate | None = None,
    ) -> "Session":
        """A session without a message yet.

        Raises:
            SessionError: `not_text`, `empty`, `task_bytes`, `context_bytes` or `session_limit`.
            StaleError: the certificate in `refuse_below` is not of this view and ranker.
            UsageError: `k` or `refuse_below` cannot be used.
        """
        if k < 1:
            raise UsageError(f"k is {k}: ask for at least 1 precedent")
        if not isinstance(refuse_below, Certificate | None) and refuse_below not in REFUSE_BELOW:
            raise UsageError(f"refuse_below is {refuse_below!r}: use one of {', '.join(REFUSE_BELOW)}")
        if isinstance(refuse_below, Certificate):
            check_certificate(refuse_below, view.visibility, view.config)
        _fits("task_bytes", _size(_text(task, "task")), self.limits.task_bytes)
        if context is not None:
            _fits("context_bytes", _size(_text(context, "context")), self.limits.context_bytes)
        return self._admit(_Open(Setting(task, context, view, world_model, k, refuse_below), 0))

    def get(self, session_id: str) -> "Session":
        """The open session of that id.

        Raises:
            SessionError: `terminal`, `ended`, `expired` or `unknown`: it is not open.
        """
        with self._lock:
            self._find(session_id)
        return Session(self, session_id)

    def counts(self) -> dict[str, int]:
        """How many sessions are active, in flight, and gone by each reason, as far as the tombstones reach."""
        with self._lock:
            self._expire(self._clock())
            flying = sum(held.in_flight for held in self._open.values())
            gone = Counter(self._gone.values())
            return {"active": len(self._open), "in_flight": flying, **{why: gone[why] for why in get_args(Gone)}}

    def _admit(self, held: _Open) -> "Session":
        session_id = self._new_id()
        with self._lock:
            now = self._clock()
            self._expire(now)
            if session_id in self._open or session_id in self._gone:
                raise UsageError(f"new_id gave {_clip(session_id)} twice; every session needs an id of its own")
            active, limit = len(self._open) + 1, self.limits.active_sessions
            _fits("session_limit", active, limit)
            held.expires_ns = now + self.limits.idle_ns
            self._open[session_id] = held
        return Session(self, session_id)

    def _find(self, session_id: str) -> _Open:
        """The state of an open session; the lock is held."""
        self._expire(self._clock())
        held = self._open.get(session_id)
        if held is None:
            raise _refusal_of(session_id, self._gone.get(session_id), self.limits)
        return held

    def _expire(self, now: int) -> None:
        idle = [i for i, held in self._open.items() if now >= held.expires_ns and not held.in_flight]
        for session_id in idle:
            self._remove(session_id, "expired")

    def _remove(self, session_id: str, reason: Gone) -> None:
        if self._open.pop(session_id, None) is None:
            return
        self._gone[session_id] = reason
        while len(self._gone) > self.limits.tombstones:
            self._gone.popitem(last=False)


def _fits(code: Code, actual: int, limit: int) -> None:
    if actual > limit:
        what, remedy = _LIMITS[code]
        raise SessionError(code, f"{actual:,} of {limit:,} {what}; {remedy}", limit=limit, actual=actual)


_LIMITS: dict[Code, tuple[str, str]] = {
    "task_bytes": ("bytes of task", "give a shorter one"),
    "context_bytes": ("bytes of context", "give a shorter one"),
    "session_limit": ("active sessions", "end one, or wait until one expires"),
    "message_limit": ("messages", "a step needs two; end this session and open another"),
    "transcript_bytes": ("bytes of transcript", "say less, or end this session and open another"),
    "observation_bytes": ("bytes of observation", "nothing was cut; try another action, or raise the limit"),
    "output_length": ("output tokens", "nothing was cut; try another action, or raise the limit"),
}


def _refusal_of(session_id: str, reason: Gone | None, limits: Limits) -> SessionError:
    what = {
        "expired": f"the session was idle for {limits.idle_ns // 1_000_000_000} s and its transcript is removed",
        "ended": "the session was ended and its transcript is removed",
        "terminal": "the session had its terminal answer and its transcript is removed",
        None: f"no session {_clip(session_id)} is known here; it was opened elsewhere, or is long gone",
    }
    return SessionError(reason or "unknown", f"{what[reason]}; open another")


class Session:
    """A handle of one session: it holds an id, and its `Sessions` all else. End it, or use it in a `with`."""

    def __init__(self, sessions: Sessions, session_id: str) -> None:
        self.id = session_id
        self._all = sessions

    def step(self, message: str | Mapping[str, object]) -> Step:
        """The predicted answer to one assistant message.

        Raises:
            SessionError: the step was refused or failed; nothing changed, and the error says what it cost.
        """
        clock, taken = self._all._clock, None
        begin = clock()
        try:
            self._held()
            text = read_message(message)
            setting, transcript = self._take_off(text)
            try:
                taken = take_turn(setting, transcript, text, clock=clock)
                return self._accept(text, _answered(taken, setting.refuse_below), taken, begin)
            finally:
                self._land()
        except SessionError as refusal:
            refusal.economics = _economics(taken, clock() - begin)
            refusal.turn = taken.turn if taken else None
            raise

    def fork(self) -> "Session":
        """Another session with the same past, and an id, a slot and an expiry of its own.

        Raises:
            SessionError: `session_limit`, or this session is not open.
        """
        held = self._held()
        return self._all._admit(
            _Open(held.setting, 0, transcript=held.transcript, turns=held.turns, size_bytes=held.size_bytes)
        )

    def end(self) -> None:
        """Remove the transcript and free the slot; a session that is gone already stays as it is."""
        with self._all._lock:
            self._all._expire(self._all._clock())
            self._all._remove(self.id, "ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def state(self) -> State:
        """The state by the table above."""
        with self._all._lock:
            self._all._expire(self._all._clock())
            held = self._all._open.get(self.id)
            if held is None:
                return self._all._gone.get(self.id, "unknown")
            return "in_flight" if held.in_flight else "open"

    @property
    def transcript(self) -> tuple[dict[str, str], ...]:
        """The accepted messages in OpenAI shape, in order. Raises SessionError: the session is not open."""
        return tuple(map(_shape, self._held().transcript))

    def gauges(self) -> tuple[Gauge, ...]:
        """What is used of every limit, in the order of Limits. Raises SessionError: the session is not open."""
        limits = self._all.limits
        held = self._held()
        counts, now = self._all.counts(), self._all._clock()
        last = held.transcript[-1].content if held.transcript else ""
        idle = min(limits.idle_ns, max(0, limits.idle_ns - held.expires_ns + now))
        setting = held.setting
        return (
            Gauge(name="active_sessions", used=counts["active"], limit=limits.active_sessions, unit="sessions"),
            Gauge(name="idle_ns", used=idle, limit=limits.idle_ns, unit="ns"),
            Gauge(name="messages", used=len(held.transcript), limit=limits.messages, unit="messages"),
            Gauge(name="transcript_bytes", used=held.size_bytes, limit=limits.transcript_bytes, unit="bytes"),
            Gauge(name="observation_bytes", used=_size(last), limit=limits.observation_bytes, unit="bytes"),
            Gauge(name="task_bytes", used=_size(setting.task), limit=limits.task_bytes, unit="bytes"),
            Gauge(name="context_bytes", used=_size(setting.context or ""), limit=limits.context_bytes, unit="bytes"),
            Gauge(name="output_tokens", used=_tokens(last), limit=limits.output_tokens, unit="tokens"),
        )

    def export(self) -> bytes:
        """JSONL: one record that says that what follows is generated, and by what; then the conversation.

        It holds no time and not the id, so equal sessions are equal bytes. Raises SessionError: the session is not open.
        """
        held = self._held()
        setting = held.setting
        header = {
            "generated": "session",
            "schema": 1,
            "world_model": setting.world_model.snapshot,
            "k": setting.k,
            "refuse_below": msgspec.to_builtins(setting.refuse_below),
            "visibility": msgspec.to_builtins(setting.view.visibility),
            "turns": [msgspec.to_builtins(turn) for turn in held.turns],
        }
        before = [{"role": "system", "content": setting.context}] if setting.context is not None else []
        messages = [*before, {"role": "user", "content": setting.task}, *map(_shape, held.transcript)]
        conversation = {"messages": messages, "metadata": {"user_source": "simulated_user", "generated": "session"}}
        return f"{canonical_json(header)}\n{canonical_json(conversation)}\n".encode()

    def __repr__(self) -> str:
        return f"Session({self.id!r}, {self.state})"

    def _held(self) -> _Open:
        """What is held now: its parts are values, and a later step puts others in their place."""
        with self._all._lock:
            return replace(self._all._find(self.id))

    def _take_off(self, text: str) -> tuple[Setting, tuple[Message, ...]]:
        """Reserve what the step is known to need."""
        limits = self._all.limits
        with self._all._lock:
            held = self._all._find(self.id)
            if held.in_flight:
                raise SessionError("busy", "a step of this session is in flight; wait for its answer")
            _fits("message_limit", len(held.transcript) + 2, limits.messages)
            _fits("transcript_bytes", held.size_bytes + _size(text) + 1, limits.transcript_bytes)
            held.in_flight = True
            return held.setting, held.transcript

    def _land(self) -> None:
        with self._all._lock:
            if held := self._all._open.get(self.id):
                held.in_flight = False

    def _accept(self, text: str, answered: tuple[str, Hits], taken: Taken, begin: int) -> Step:
        """Append both messages, or raise and append neither."""
        answer, hits = answered
        limits = self._all.limits
        if not answer.strip():
            raise SessionError("observation_empty", "the predicted message says nothing; try another action")
        _fits("output_length", _tokens(answer), limits.output_tokens)
        _fits("observation_bytes", _size(answer), limits.observation_bytes)
        said = Message(role="assistant", content=text), Message(role="user", content=answer)
        with self._all._lock:
            held = self._all._find(self.id)
            size_bytes = held.size_bytes + _size(text) + _size(answer)
            _fits("transcript_bytes", size_bytes, limits.transcript_bytes)
            held.transcript += said
            held.turns += (taken.turn,)
            held.size_bytes = size_bytes
            held.expires_ns = self._all._clock() + limits.idle_ns
            if taken.turn.terminal:
                self._all._remove(self.id, "terminal")
        economics = _economics(taken, self._all._clock() - begin)
        return Step(_shape(said[1]), taken.turn.terminal, taken.turn, hits, taken.uses, economics)


def _answered(taken: Taken, below: Label | Certificate | None) -> tuple[str, Hits]:
    """The prediction and the hits of a turn; a refused or failed turn raises."""
    turn, hits = taken.turn, taken.hits
    if isinstance(hits, Unverifiable) and turn.failure is None:
        raise SessionError(
            "no_precedent", f"nothing real can be consulted ({hits.reason}); exclude less, or import more"
        )
    if turn.refused == "no_support":
        why = f"the support is {turn.support}, below what was asked for"
        if isinstance(below, Certificate) and isinstance(hits, Hits):
            why = refused(hits, below) or why
        raise SessionError("no_support", f"{why}; nothing was sent")
    if isinstance(hits, Unverifiable) or turn.failure is not None or turn.prediction is None:
        detail = turn.failure.detail if turn.failure else "no prediction"
        raise SessionError("provider", f"{ascii(detail)[1:201]}; the session is as before, the step can be tried again")
    return turn.prediction, hits


def _economics(taken: Taken | None, total_ns: int) -> dict[Component, Spent]:
    """Cost and time by component; what no component took is orchestration."""
    costs = dict(taken.turn.costs) if taken else dict.fromkeys(COMPONENTS, FREE)
    latency = dict(taken.latency_ns) if taken else dict.fromkeys(COMPONENTS, 0)
    latency["orchestration"] = total_ns - latency["world_model"] - latency["retrieval"]
    return {component: _spent(costs[component], latency[component]) for component in COMPONENTS}


def _spent(cost: Cost, latency_ns: int) -> Spent:
    usage = None if cost.usage is None else dict(cost.usage)
    return {"usage": usage, "cost_nusd": cost.cost_nusd, "basis": cost.basis, "latency_ns": latency_ns}


def _shape(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.content}


def _size(text: str) -> int:
    return len(text.encode())


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)
