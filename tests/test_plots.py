"""A figure says what its table shows, draws what was left out or is unknown, and is the same bytes every time."""

import html
import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiential_lab.evidence.frames import LEDGER
from experiential_lab.evidence.trace import PAIRINGS, STEP_REASONS
from experiential_lab.lab import Lab, bundled
from experiential_lab.records import Unverifiable
from experiential_lab.retrieval.grounding import around, query_of
from experiential_lab.show import plots, theme

HOSTILE = "<script>alert(1)</script> <b>$x^2$</b> &lt; \n\x00" + "y" * 5_000


def counts_of(*, records=4, rejected=None, pairing=None, left_out=None, steps=None):
    rejected, pairing, left_out = rejected or {}, pairing or {}, left_out or {}
    paired = sum(pairing.values())
    return {
        "sources": 1,
        "traces": 2,
        "records": records,
        "records_used": records - sum(rejected.values()),
        "records_rejected": rejected,
        "steps": paired + sum(left_out.values()) if steps is None else steps,
        "transitions": paired,
        "pairing": pairing,
        "left_out": left_out,
    }


def ledger_of(*traces, action="look {}", is_error=False):
    """A ledger frame from the outcomes of each trace."""
    rows = [
        {
            "trace": f"{number:016x}",
            "step": step,
            "action": action,
            "outcome": outcome,
            "is_error": is_error,
            "transition": f"{number:016x}/{step:04d}" if outcome in PAIRINGS else None,
        }
        for number, outcomes in enumerate(traces)
        for step, outcome in enumerate(outcomes)
    ]
    return pl.DataFrame([tuple(row.get(name) for name in LEDGER) for row in rows], schema=LEDGER, orient="row")


def hit(boundary, rank, relation="other task", same=False, **more):
    return {
        "boundary": boundary,
        "rank": rank,
        "score": 100 - (rank or 0),
        "relation": relation,
        "same_observation": same,
        "action": "look {}",
        "observation": "[]",
        "id": f"t/{rank}",
        "eligible": 9,
        "reason": None,
    } | more


def hits_of(*rows):
    return pl.DataFrame(list(rows), schema=plots.NEAREST)


def spent(cost_nusd=0, basis="free", latency_ns=5):
    return {"usage": {}, "cost_nusd": cost_nusd, "basis": basis, "latency_ns": latency_ns}


def written(finding):
    """Every text of a figure that is no hover."""
    return [note.text for note in finding.figure.layout.annotations]


def test_the_title_counts_the_paired_steps_and_says_that_the_others_have_a_reason():
    finding = plots.plot_ledger(
        counts_of(pairing={"explicit_id": 3}, left_out={"control_token_only": 2}),
        ledger_of(["explicit_id"] * 3 + ["control_token_only"] * 2),
    )
    assert finding.title == "3 of 5 steps are paired; every left-out one has a reason"
    assert "left out: 2 control token only; the sum holds" in finding.sentence
    assert finding.table.rows() == [
        ("records", "used", None, 4),
        ("steps", "paired", "explicit_id", 3),
        ("steps", "left out", "control_token_only", 2),
    ]


@pytest.mark.parametrize(("rows", "gap"), [(2, "−1"), (3, "0"), (5, "2")])
def test_a_sum_that_does_not_hold_is_said_in_the_title_and_beside_its_bar(rows, gap):
    finding = plots.plot_ledger(counts_of(pairing={"user_reply": 3}), ledger_of(["user_reply"] * rows))
    if gap == "0":
        assert "sum = 3 ✓" in written(finding)
    else:
        assert finding.title == f"✗ The sums do not hold: off in steps by {gap}"
        assert f"<b>✗ off by {gap}</b>" in written(finding)


def test_a_rejected_record_that_is_not_counted_is_noticed():
    counts = counts_of(records=9, rejected={"not_json": 2}, pairing={"user_reply": 1}) | {"records_used": 6}
    assert plots.plot_ledger(counts, ledger_of(["user_reply"])).title.endswith("off in records by −1")


@given(st.lists(st.lists(st.sampled_from([*PAIRINGS, *STEP_REASONS]), min_size=1, max_size=9), min_size=1, max_size=20))
@settings(max_examples=20)
def test_every_step_is_one_tick_of_the_ribbon_and_what_was_left_out_is_hatched(traces):
    finding = plots.plot_ledger(counts_of(), ledger_of(*traces))
    ticks = [bar for bar in finding.figure.data if bar.yaxis == "y3"]
    assert sum(len(bar.x) for bar in ticks) == sum(map(len, traces))
    hatched = sum(len(bar.x) for bar in ticks if bar.marker.pattern.shape == "/")
    assert hatched == sum(outcome in STEP_REASONS for trace in traces for outcome in trace)
    assert len({(x, y) for bar in ticks for x, y in zip(bar.base, bar.y, strict=True)}) == sum(map(len, traces))


def test_the_ribbon_shows_sixty_traces_those_with_most_left_out_first_and_counts_the_others():
    ledger = ledger_of(*[["user_reply"]] * 70, ["unanswered_call"])
    finding = plots.plot_ledger(counts_of(pairing={"user_reply": 70}, left_out={"unanswered_call": 1}), ledger)
    assert "60 of 71, 11 more" in written(finding)
    assert [bar.y[0] for bar in finding.figure.data if bar.marker.pattern.shape == "/" and bar.yaxis == "y3"] == [0]


def test_a_declared_error_is_a_cross_on_its_tick():
    finding = plots.plot_ledger(counts_of(pairing={"explicit_id": 1}), ledger_of(["explicit_id"], is_error=True))
    assert [mark.marker.symbol for mark in finding.figure.data if mark.type == "scatter"] == ["x-thin"]


def test_one_left_out_step_in_a_million_is_still_drawn_and_named():
    counts = counts_of(pairing={"user_reply": 999_999}, left_out={"id_mismatch": 1})
    finding = plots.plot_ledger(counts, ledger_of())
    assert [bar.x[0] for bar in finding.figure.data if bar.yaxis == "y2"][1] > 0.005
    assert "▨ 1 id mismatch left out" in written(finding)


def test_an_import_that_pairs_nothing_is_drawn_too():
    counts = counts_of(left_out={"terminal_no_observation": 1})
    assert plots.plot_ledger(counts, ledger_of(["terminal_no_observation"])).title.startswith("0 of 1 step are paired")


@pytest.mark.parametrize(
    ("steps", "title"),
    [
        (0, "No step was found: there is nothing to pair"),
        (1, "The 1 step is paired with what really followed"),
        (2, "All 2 steps are paired with what really followed"),
    ],
)
def test_the_title_says_when_all_are_paired_or_none_was_found(steps, title):
    finding = plots.plot_ledger(counts_of(pairing={"user_reply": steps}), ledger_of(["user_reply"] * steps))
    assert finding.title == title


MATCHES = [
    (True, True, "its observation still matches"),
    (True, False, "its observation no longer matches"),
    (False, True, "its observation matches only now"),
    (False, False, "its observation matches in neither case"),
]


@pytest.mark.parametrize(("before", "after", "told"), MATCHES)
def test_the_title_says_how_hit_1_changes_when_the_lineage_is_left_out(before, after, told):
    frame = hits_of(hit("self", 1, "conversation", before, id="a"), hit("lineage", 1, "other task", after, id="b"))
    title = plots.plot_nearest(frame).title
    assert (
        title == f"Leave out its whole conversation and hit 1 changes from its own conversation to another task; {told}"
    )


def test_the_title_says_when_a_boundary_changes_nothing():
    frame = hits_of(hit("self", 1), hit("trace", 1))
    assert plots.plot_nearest(frame).title.startswith(
        "Leaving out its own trace changes nothing: hit 1 comes from another"
    )


def test_a_related_hit_is_red_and_a_right_one_a_diamond_in_mark_and_word():
    frame = hits_of(hit("self", 1, "conversation", True), hit("self", 2, "other task", False))
    finding = plots.plot_nearest(frame)
    marks = [mark.marker for mark in finding.figure.data if mark.mode == "markers"]
    hue = theme.PALETTE["light"]
    assert [(mark.symbol, mark.color) for mark in marks] == [("diamond", hue["leak"]), ("circle", hue["observed"])]
    assert "<b>◆ same observation, conversation</b>" in written(finding)
    assert "● another observation, other task" in written(finding)


def test_a_search_that_found_nothing_is_named_and_not_an_empty_plot():
    frame = plots.nearest_frame({}, {"lineage": Unverifiable(reason="empty view")})
    finding = plots.plot_nearest(frame)
    assert finding.title == "Leave out its whole conversation and nothing is left to copy: empty view"
    assert "? no precedent: empty view" in written(finding)
    assert plots.plot_nearest(hits_of()).title == "No search was made: there is nothing to show"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("desk") / "lab")
    report = lab.import_traces(bundled("desk_tools.jsonl"))
    lab.split()
    return lab, report, lab.index()


def test_real_hits_know_their_kin(desk):
    lab, _, index = desk
    steps = lab.transitions()
    family = dict(steps.select("id", "family").iter_rows())
    step = steps.filter(pl.col("tool") == "get_order").row(0, named=True)
    query = query_of(lab.transition(step["id"]))
    views = {level: index.view("all", exclude=around(index, step["id"], level)) for level in theme.BOUNDARIES}
    frame = plots.nearest_frame(step, {level: view.nearest(query, k=40) for level, view in views.items()})
    for row in frame.iter_rows(named=True):
        kin = row["relation"] in ("own trace", "conversation", "family")
        assert kin == (family[row["id"]] == step["family"])
        levels = tuple(theme.BOUNDARIES)
        place = {"own trace": "trace", "conversation": "lineage", "identical call": "key"}.get(
            row["relation"], row["relation"]
        )
        assert place == "other task" or levels.index(place) > levels.index(row["boundary"])


def test_an_identical_call_of_another_task_is_told_apart_from_other_words(desk):
    lab, _, index = desk
    texts = dict(lab.transitions().select("id", "action").iter_rows())
    step = lab.transitions().filter(pl.col("action").str.starts_with("I need your account first")).row(0, named=True)
    view = index.view("all", exclude=around(index, step["id"], "family"))
    frame = plots.nearest_frame(step, {"family": view.nearest(query_of(lab.transition(step["id"])), k=30)})
    assert set(frame["relation"]) == {"identical call", "other task"}
    for row in frame.iter_rows(named=True):
        assert (row["relation"] == "identical call") == (texts[row["id"]] == step["action"])


def test_hits_of_rank_1_are_counted_by_boundary_and_a_step_without_one_stays_in_the_denominator():
    one = hits_of(hit("self", 1, "conversation", True), hit("self", 2, "conversation", True), hit("key", 1))
    other = hits_of(hit("self", 1, "identical call"), hit("key", None, None, None, score=None))
    assert plots.kin_frame(pl.concat([one, other])).rows() == [
        ("self", 2, 1, 1, 1, 0, "only the step itself"),
        ("key", 2, 0, 0, 0, 1, "its family and identical calls"),
    ]


def test_figures_of_a_real_import_are_equal_bytes_twice_and_hold_no_random_id(desk):
    _, report, _ = desk
    once, again = (plots.plot_ledger(report.counts, report.ledger).figure.to_json() for _ in range(2))
    assert once == again
    assert '"uid"' not in once


def test_what_is_free_is_zero_with_the_word_and_what_is_absent_has_no_row():
    finding = plots.plot_costs(plots.costs_frame([{"retrieval": spent(), "world_model": spent()}]))
    assert finding.title == "1 step costs $0: every component is free"
    assert finding.figure.layout.yaxis.ticktext == ("world model  ", "retrieval  ", "<b>total</b>  ")
    assert written(finding).count("$0, free") == 2


def test_law_9_an_unknown_cost_is_a_hatched_stub_outside_of_the_sum():
    steps = [{"world_model": spent(7_000_000, "observed")}, {"world_model": spent(None, "unknown")}]
    finding = plots.plot_costs(plots.costs_frame(steps), latency=False)
    assert finding.title == "2 steps cost at least 7.00 m$; 1 cost of world model is unknown"
    assert "at least 7.00 m$; 1 unknown" in written(finding)
    hatched = [bar for bar in finding.figure.data if bar.marker.pattern.shape == "/"]
    assert [bar.base for bar in hatched] == [(7_000_000,)]
    assert finding.table["unknown"].to_list() == [1]


def test_what_was_never_known_is_no_zero():
    finding = plots.plot_costs(plots.costs_frame([{"judge": spent(None, "unknown")}]))
    assert "unknown (1 step)" in written(finding)
    assert finding.table["cost_nusd"].to_list() == [None]


def test_law_9_a_time_that_was_not_taken_is_unknown_and_no_zero():
    finding = plots.plot_costs(plots.costs_frame([{"retrieval": spent(latency_ns=None)}]))
    assert "unknown" in written(finding)
    assert finding.table["median_latency_ns"].to_list() == [None]


def test_before_the_first_step_there_is_nothing_and_it_says_so():
    assert plots.plot_costs(plots.costs_frame([])).title == "No step was taken: nothing was spent"


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=6))
@settings(max_examples=20)
def test_without_latency_a_figure_of_costs_is_a_function_of_the_money_alone(latencies):
    frames = [plots.costs_frame([{"retrieval": spent(latency_ns=latency)}]) for latency in latencies]
    assert len({plots.plot_costs(frame, latency=False).figure.to_json() for frame in frames}) == 1


def test_the_median_step_and_not_the_mean_stands_for_a_component():
    frame = plots.costs_frame([{"retrieval": spent(latency_ns=latency)} for latency in (1, 2, 10**9)])
    assert plots.plot_costs(frame).table["median_latency_ns"].to_list() == [2]


def every_finding(mode, text="look {}"):
    yield plots.plot_ledger(counts_of(pairing={"user_reply": 2}), ledger_of(["user_reply"] * 2, action=text), mode=mode)
    rows = (hit("self", 1, "conversation", True, action=text, observation=text), hit("lineage", 1, id="b"))
    yield plots.plot_nearest(hits_of(*rows), mode=mode)
    yield plots.plot_costs(plots.costs_frame([{"retrieval": spent(3, "estimated")}]), mode=mode)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_figure_bears_its_finding_its_n_and_a_sentence(mode):
    for finding in every_finding(mode):
        notes = {note.name: note.text for note in finding.figure.layout.annotations if note.name}
        assert html.unescape(notes["title"].replace("<br>", " ")) == f"<b>{finding.title}</b>"
        assert any(letter.isdigit() for letter in notes["kicker"])
        assert finding.figure.layout.meta == {"title": finding.title}
        assert finding.sentence.endswith(".")
        assert finding.figure.layout.template.layout.font.color == theme.PALETTE[mode]["ink"]


def test_markup_and_formulas_of_a_trace_stay_text_and_are_clipped():
    for finding in every_finding("light", HOSTILE):
        said = json.dumps(json.loads(finding.figure.to_json()), ensure_ascii=False)
        assert "<script" not in said
        assert "$x" not in said
        assert "yyy" * 100 not in said


def test_a_long_title_is_broken_before_the_narrowest_page_ends():
    rows = (hit("self", 1, "conversation", True), hit("key", 1, "other task", id="b"))
    title = next(note for note in plots.plot_nearest(hits_of(*rows)).figure.layout.annotations if note.name == "title")
    assert max(map(len, title.text.removeprefix("<b>").removesuffix("</b>").split("<br>"))) <= 62
