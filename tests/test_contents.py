"""What the page about a file or folder says of its formats, reasons, families, usage and cost."""

import json
from pathlib import Path

from experiential_lab.evidence.report import ImportReport, import_files
from experiential_lab.lab import bundled
from experiential_lab.show.contents import TRACES_SHOWN, contents
from experiential_lab.show.widgets import struck_html, table_html


def span(name: str, parent: str | None, **attributes: object) -> dict[str, object]:
    """A span per line; a chat span holds one exchange."""
    shell = {"trace_id": "1" * 32, "span_id": name * 16, "parent_id": parent and parent * 16, "name": name}
    return {**shell, "start_time": "2026-01-01T00:00:00Z", "attributes": attributes}


def report_of(tmp_path: Path, *spans: dict[str, object]) -> ImportReport:
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(each) + "\n" for each in spans))
    return import_files(tmp_path / "lab", [tmp_path / "spans.jsonl", bundled("desk_tools.jsonl")])


def test_a_parent_that_repeats_what_its_children_used_is_struck_through_and_not_added(tmp_path: Path):
    used = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2}
    said = {
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}]),
    }
    agent = span("a", None, **{"gen_ai.operation.name": "invoke_agent"}, **used)
    found = contents(report_of(tmp_path, agent, span("b", "a", **{"gen_ai.operation.name": "chat"}, **used, **said)))
    assert found.repeated == "1 parent span or second view, counted on its children"
    assert struck_html(found.repeated) == (
        '<div class="xl"><s class="k">1 parent span or second view, counted on its children</s></div>'
    )
    assert "the usage of 1 is known, and the cost of none; unknown is not zero" in found.spent
    (told,) = found.traces["usage"].drop_nulls()
    assert "7 input_tokens" in told


def test_nothing_repeated_is_nothing_said_and_traces_that_are_not_listed_are_counted(tmp_path: Path):
    report = import_files(tmp_path / "lab", [bundled("desk_tools.jsonl")])
    found = contents(report)
    assert found.repeated == ""
    assert report.counts["traces"] > TRACES_SHOWN == found.traces.height
    assert f"The first {TRACES_SHOWN} of {report.counts['traces']} traces are listed." in found.spent


def test_what_a_copy_used_reads_as_counted_elsewhere_and_never_as_an_empty_result(tmp_path: Path):
    line = {"uuid": "1", "sessionId": "s", "type": "user", "message": {"role": "user", "content": "go"}}
    said = {"id": "m", "role": "assistant", "usage": {"input_tokens": 1}, "content": [{"type": "text", "text": "ok"}]}
    more = [
        line,
        line | {"uuid": "2", "parentUuid": "1", "type": "assistant", "message": said},
        line | {"uuid": "3", "parentUuid": "2", "message": {"role": "user", "content": "thanks"}},
    ]
    whole = "".join(json.dumps(each) + "\n" for each in more)
    (tmp_path / "a.jsonl").write_text(whole)
    (tmp_path / "b.jsonl").write_text(whole + "\n")
    found = contents(import_files(tmp_path / "lab", [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]))
    assert sorted(found.traces["usage"]) == ["1 input_tokens, 1 model_messages", "counted elsewhere"]
    assert "empty result" not in table_html(found.traces, null="unknown")


def test_one_family_is_one_at_every_threshold_and_the_axis_counts_whole_families(tmp_path: Path):
    said = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    (tmp_path / "t.jsonl").write_text(json.dumps({"messages": said}) + "\n")
    found = contents(import_files(tmp_path / "lab", [tmp_path / "t.jsonl"]))
    assert found.sweep.sentence.startswith("From 0.30 to 1.00 there is 1 family;")
    assert found.sweep.figure.layout.yaxis.dtick == 1
    assert found.sweep.figure.layout.margin.l >= 48  # room for the numbers of the axis
    assert found.leak.endswith("raise the threshold.")
