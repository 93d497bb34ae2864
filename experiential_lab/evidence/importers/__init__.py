"""One module a family of formats. Each is pure: framed records in, traces with spans out; pairing happens once, elsewhere.

A format is one `Format` in its module and one row in `formats()`: a sniff rule over the first parsed values, and a reader.
The file's name decides nothing. Two rules that match are refused with both names; a declared format wins.
"""

from collections.abc import Iterable
from itertools import chain, islice

from experiential_lab.evidence.framing import Frames
from experiential_lab.evidence.importers import (
    anthropic,
    atif,
    chat,
    chat_chunks,
    claude_code,
    codex,
    inspect_logs,
    langfuse,
    langsmith,
    openhands,
    openinference,
    otel,
    responses,
    swe_agent,
    tau2,
    toolbench,
    vercel_ai,
)
from experiential_lab.evidence.importers.format import Format
from experiential_lab.records import TraceFormatError, UsageError

LOOKED_AT = 1_000  # the first records that the rules may look at: some files open with many lines of their own metadata


def formats() -> tuple[Format, ...]:
    """Every known format."""
    families = (
        *(chat, chat_chunks, tau2, claude_code, codex, inspect_logs, atif, swe_agent, openhands),
        *(toolbench, responses, anthropic, vercel_ai),
        *(otel, openinference, langfuse, langsmith),
    )
    return tuple(each for family in families for each in family.FORMATS)


def choose(frames: Frames, declared: str | None = None) -> tuple[Format, str]:
    """The format of a file and the rule that chose it.

    Raises:
        UsageError: no format has the declared name.
        TraceFormatError: no rule matches, two do, or no record fits the declared format.
    """
    known = {each.name: each for each in formats()}
    readable = (record.value for record in frames.records if not record.reason)
    if declared is not None:
        if declared not in known:
            raise UsageError(f"no format is called {declared!r}; known are {', '.join(known)}")
        values = list(islice(readable, LOOKED_AT))
        if not any(known[declared].fits(value) for value in values):
            seen = _matches(values)
            looks = f"it looks like {' and '.join(seen)}" if seen else f"it starts with {_seen(values, frames)}"
            raise TraceFormatError(
                f"no record fits the declared format {declared}: {looks}; leave --format out to sniff"
            )
        return known[declared], "declared"
    seen = _matches(islice(readable, LOOKED_AT))
    if not seen:
        first = [record.value for record in frames.records if not record.reason][:1]
        raise TraceFormatError(
            f"no known format: the first record holds {_seen(first, frames)}; xlab import --help names the formats"
        )
    if len(seen) > 1:
        raise TraceFormatError(f"two formats fit, {' and '.join(seen)}; choose one with --format")
    ((name, rule),) = seen.items()
    return known[name], rule


def _matches(values: Iterable[object]) -> dict[str, str]:
    """{format: rule} of the first value that any rule knows. Messages one by one are known by all of them together."""
    values = iter(values)
    first = list(islice(values, 1))
    if first and isinstance(first[0], dict) and "role" in first[0] and not {"messages", "type"} & first[0].keys():
        first += values
        values = iter(())
        first.insert(0, list(first))
    for value in chain(first, values):
        seen = {each.name: rule for each in formats() if (rule := each.sniff(value))}
        if seen:
            return seen
    return {}


def _seen(values: list[object], frames: Frames) -> str:
    if not values:
        reasons = sorted({record.reason for record in frames.records})
        return f"nothing that can be read ({', '.join(reasons) or 'no record'})"
    first = values[0]
    if isinstance(first, dict):
        keys = [repr(key[:40]) for key in list(first)[:8]]  # of a file of anybody: short, and in one line
        return f"an object with the keys {', '.join(keys) or '(none)'}"
    return f"a list of {len(first)}" if isinstance(first, list) else type(first).__name__
