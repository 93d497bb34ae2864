"""The shapes of evidence: what one importer gives back, and what the ledger makes of it.

- A trace is one recorded conversation or run, as a flat tuple of events in the order of its source.
- An event is one block: a text, a call, a result, a user or system message. An event that no rule may use says why in
  `aside`; it stays in the trace, in its place.
- A step is one call, or one text message of a turn without calls. A transition is a step with its later observation.
- Reasons are closed lists: a new reason is a new member here, and a row in the documentation.

Not covered: what any text means. Author `unknown` stays unknown, `is_error` is only what the format declares.
"""

from typing import Literal

from experiential_lab.records import Record, Span

Author = Literal["environment", "human", "simulated_user", "unknown"]
Pairing = Literal["explicit_id", "explicit_id_scoped", "structural", "name_order", "order_only", "user_reply"]
ObservationKind = Literal["tool_result", "tool_error", "user_rejection", "user_reply"]
Origin = Literal["recorded", "simulated_environment", "written"]

PAIRINGS: tuple[Pairing, ...] = (
    "explicit_id",
    "explicit_id_scoped",
    "structural",
    "name_order",
    "order_only",
    "user_reply",
)
STEP_REASONS = (
    "terminal_no_observation",
    "unanswered_call",
    "id_mismatch",
    "call_without_name",
    "control_token_only",
    "no_authored_reply",
    "ambiguous_order",
    "replayed_history",
)
EVENT_REASONS = (
    "orphan_result",
    "id_mismatch",
    "duplicate_result",
    "synthetic_assistant",
    "compaction_summary",
    "harness_text",
    "interrupt_marker",
    "control_token",
    "tool_definition",
    "observation_without_action",
    "duplicate_view",
    "replayed_history",
    "sidechain_prompt",
    "reasoning",  # private reasoning in a turn that says and does nothing else
    "empty_message",  # an assistant message without text and without a call
    "unknown_role",  # a message whose role no rule knows
)
RECORD_REASONS = (
    "not_json",
    "not_object",
    "not_utf8",
    "nul_bytes",
    "too_deep",
    "truncated",
    "duplicate_record",
    "duplicate_span",
    "unknown_shape",
)
EXCERPT = 120  # code points of a text that a report shows
STOP_MARKERS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")  # how the simulated users of tau-bench end one


def shown(text: str) -> str:
    """The text without stop markers, as it is shown or copied; the stored bytes keep them.

    >>> shown("Thank you, bye. ###STOP###")
    'Thank you, bye.'
    """
    for marker in STOP_MARKERS:
        if marker in text:
            text = text.replace(marker, "").rstrip()
    return text


class Event(Record, kw_only=True, gc=False):  # as Span: it can be in no cycle
    kind: Literal["task", "context", "text", "reasoning", "call", "result", "user", "control", "boundary"]
    turn: str
    """Equal for all blocks of one model output."""
    branch: str = ""
    span: Span
    text: str = ""
    """A text, the arguments of a call (exact source text), or a result."""
    tool: str | None = None
    call_id: str | None = None
    """None: undeclared (an empty string and null too)."""
    within: str | None = None
    """Equal for an action and a result that stands inside the action's own record: a structural relation. None: none."""
    author: Author = "unknown"
    is_error: bool | None = None
    """Only what the format declares."""
    rejected: bool = False
    """The user refused the call: the result is their refusal, not the tool's answer."""
    stop: bool = False
    """The text carries the source's stop marker, or is nothing else."""
    at: str | None = None
    aside: str | None = None
    """One of EVENT_REASONS: why no rule may use this event."""


class Trace(Record, kw_only=True):
    trace_id: str
    """16 hex of sha256(format, declared session, run or conversation id, else digest of the record's bytes)."""
    source: str
    """Digest of the file that holds it."""
    format: str
    name: str = ""
    """What people call it, for example `task 3, trial 1`; never an identity."""
    keys: tuple[str, ...]
    """Lineage keys: `session:..`, `parent:..`, `task:<digest of the statement or corpus>:<id>`."""
    task: str | None
    """The first request that the agent could see."""
    context: str | None = None
    """What was visible before the first action (system prompt, instructions)."""
    statement: str | None = None
    """A declared task text that the agent did not see; for lineage and families only, never in a query."""
    declared_tools: int | None = None
    complete: bool | None = None
    """The format says that the run ended."""
    usage: tuple[tuple[str, int], ...] | None = None
    """((kind of unit, count), ...) of leaf calls; None: unknown."""
    cost_nusd: int | None = None
    """Nano-dollars of leaf calls, as the source states them; None: unknown."""
    usage_repeated: int = 0
    """Parents and second views that state usage or cost which `usage` counts already: they were not added."""
    events: tuple[Event, ...]


class Rejected(Record, kw_only=True):
    """A framed record that could not be read, with its place."""

    reason: str
    source: str
    member: str = ""
    """Path inside a zip."""
    record: int
    """Number of the record in its file, from 1 (for lines: the line)."""
    offset: int
    size: int
    excerpt: str
    """At most 120 characters, for people; not escaped."""


class Imported(Record, kw_only=True):
    """All that one importer found in one source."""

    traces: tuple[Trace, ...]
    records: int
    rejected: tuple[Rejected, ...] = ()


class Action(Record, kw_only=True):
    text: str | None = None
    """A message, or the text beside a call."""
    tool: str | None = None
    arguments: str | None = None
    """Exact source text; `{}` when empty."""


class Transition(Record, kw_only=True):
    transition_id: str
    """`<trace_id>/0012`, the ordinal of the step: it stays when the file grows."""
    trace_id: str
    task: str | None
    recent: str | None
    """The last observation before the action's turn."""
    action: Action
    observation: str
    """Exact text; stop markers are stripped only where it is shown or copied."""
    terminal: bool | None
    """A label, never in a key. None: unknown."""
    pairing: Pairing
    observation_kind: ObservationKind
    observation_source: Author
    is_error: bool | None = None
    at: str | None = None
    action_span: Span
    observation_span: Span


class LedgerRow(Record, kw_only=True):
    """What became of one step."""

    trace_id: str
    step: int
    branch: str = ""
    """A sub-agent, an edited continuation or another list; empty: the main line."""
    transition_id: str | None = None
    outcome: str
    """A pairing kind, or one of STEP_REASONS."""
    tool: str | None = None
    action: str
    """What is shown of the action: tool, one space, arguments; or the message."""
    flags: tuple[str, ...] = ()
    """`id_not_unique_in_turn`"""
    span: Span


class SetAside(Record, kw_only=True):
    """An event that no step and no observation used, with its reason and its place."""

    trace_id: str
    kind: str
    reason: str
    span: Span
    excerpt: str
    """At most 120 characters, for people; not escaped."""
