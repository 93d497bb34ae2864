"""The microscope's title is its finding, what is left out stays visible, foreign text stays text, and its page stands alone."""

import importlib.util
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from retrieval_cases import transition

from experiential_lab.claims.fidelity import LADDER, STEPS, Microscope, microscope_ladder, microscope_steps
from experiential_lab.lab import Lab, bundled
from experiential_lab.records import IntegrityError, NoEvidence
from experiential_lab.retrieval.index import build
from experiential_lab.retrieval.views import BOUNDARIES, Facts, View, entry_of, snapshot_of
from experiential_lab.show import microscope, theme
from experiential_lab.show import microscope_plots as plots
from experiential_lab.show.boundary import KINDS, Boundary
from experiential_lab.show.specimens import Specimen, first_step, look, moved, next_changed

OURS = {"div", "span", "table", "thead", "tbody", "tr", "th", "td", "b", "i", "p", "colgroup", "col", "section", "wbr"}
OURS |= {"del", "ins", "details", "summary", "br"}
NAMES = {"class", "title", "role", "aria-level", "aria-live", "aria-label", "style", "colspan"}
LOOK, OTHER = ("look", '{"id":"A1"}'), ("look", '{"id":"B7"}')
texts = st.text(st.sampled_from("<>&\"'$ab{}[]:,1\n\0 ") | st.characters(codec="utf-8"), max_size=40)


class Page(HTMLParser):
    """The tags, the attributes and the text of a page, as a browser would read them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.names, self.text = [], set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.names |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.text += data


def scene(*steps):
    """A specimen of the first step and the tables of all; each step is (act, observation, trace, lineage, family)."""
    made = [
        transition(n, act, said, trace_id=trace, observation_kind="tool_result")
        for n, (act, said, trace, _, _) in enumerate(steps)
    ]
    entries = [entry_of(one, lineages=(lineage,), path="x") for one, (*_, lineage, _) in zip(made, steps, strict=True)]
    facts = {
        one.transition_id: Facts(split="held_out", family=family) for one, (*_, family) in zip(made, steps, strict=True)
    }
    index = build(View(snapshot_of(entries, facts)))
    table = microscope_steps(index, made)
    return Specimen(index, made[0]), Microscope(
        table, microscope_ladder(table), "held_out", "copy-nearest", "c0ffee" * 9
    )


def trials(said="gone", other="here"):
    """A step, a trial of the same task that was answered alike, and another task."""
    return scene((LOOK, said, "t0", "L0", "f0"), (LOOK, said, "t1", "L0", "f0"), (OTHER, other, "t2", "L1", "f1"))


def crowd():
    """The same among other things that were done: so many that a shared word counts."""
    rest = [((f"do{n}", f'{{"{"xyzuvw"[n]}{n}":"{n}{n}"}}'), str(n), f"t{n + 3}", "L2", "f2") for n in range(6)]
    others = (LOOK, "gone", "t0", "L0", "f0"), (LOOK, "gone", "t1", "L0", "f0"), (OTHER, "here", "t2", "L1", "f1")
    return scene(*others, *rest)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """The bundled desk with every step asked, and one of its steps."""
    lab = Lab(tmp_path_factory.mktemp("desk"))
    lab.import_traces(bundled("desk_tools.jsonl"))
    lab.split()
    table = microscope_steps(lab.index(), lab.corpus.transitions, asked="all")
    scope = Microscope(table, microscope_ladder(table), "all", "copy-nearest", "c0ffee" * 9)
    return Specimen(lab.index(), lab.transition(first_step(scope))), scope


def ladder_of(**given) -> pl.DataFrame:
    """Five rungs of exact match; `given` is of the rung `lineage`."""
    first = {
        "metric": "exact",
        "n": 90,
        "families": 30,
        "mean": 400_000,
        "low": 300_000,
        "high": 500_000,
        "floor": 50_000,
    }
    first |= {"no_candidate": 0, "by_row": 400_000, "above_low": 100_000, "above_high": 300_000, "diff_reason": "first"}
    rest = first | {"diff": 190_000, "diff_low": 120_000, "diff_high": 280_000, "mean": 210_000, "diff_reason": None}
    rows = [(first if level == "self" else rest) | {"boundary": level} for level in BOUNDARIES]
    rows[2] |= given
    return pl.DataFrame([tuple(row.get(name) for name in LADDER) for row in rows], schema=LADDER, orient="row")


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ({}, "Leave out its whole conversation, and exact match falls from 0.40 to 0.21"),
        (
            {"diff_low": -10_000},
            "Leaving out its whole conversation makes no clear difference: exact match 0.40 and 0.21",
        ),
        (
            {"above_low": -10_000},
            "Leave out its whole conversation, and exact match falls from 0.40 to 0.21: "
            "not distinguishable from a random call of the same tool",
        ),
        (
            {"diff": -50_000, "diff_low": -90_000, "diff_high": -10_000, "mean": 450_000},
            "Leave out its whole conversation, and exact match rises from 0.40 to 0.45",
        ),
        (
            {"diff_low": None, "diff_high": None, "diff_reason": "not enough families: 12, needs 20"},
            "Leave out its whole conversation, and exact match is 0.21 instead of 0.40, without an interval "
            "(not enough families: 12, needs 20)",
        ),
        (
            {"diff": 0, "diff_low": None, "diff_high": None, "mean": 400_000},
            "Leaving out its whole conversation changes nothing on these 90 steps: exact match 0.40",
        ),
        (
            {"no_candidate": 90},
            "Leave out its whole conversation and nothing is left to copy: no step has a candidate, each counts as score 0",
        ),
    ],
)
def test_the_title_is_the_finding_at_the_boundary(given, title):
    ladder = ladder_of(**given)
    assert plots.headline(ladder, "lineage", "exact") == title
    assert plots.plot_ladder(ladder, "lineage", "exact").figure.layout.meta["title"] == title


def test_the_first_title_says_what_copying_scores():
    expected = "With only the step itself left out, copying the nearest transition scores 0.40 exact match"
    assert plots.headline(ladder_of(), "self", "exact") == expected
    with pytest.raises(IntegrityError, match="lineage is asked for"):
        plots.headline(ladder_of().clear(), "lineage", "exact")


def said_in(finding) -> str:
    return " ".join(note.text for note in finding.figure.layout.annotations if note.text)


def test_the_arrow_is_drawn_only_when_the_paired_interval_lies_above_0():
    assert "<b>−0.19</b> owed to leakage<br>[0.12, 0.28]" in said_in(plots.plot_ladder(ladder_of(), "lineage", "exact"))
    for rung in ({"diff_low": 0}, {"diff_low": None}, {"diff": -5, "diff_low": -9, "diff_high": -1}):
        assert "owed" not in said_in(plots.plot_ladder(ladder_of(**rung), "lineage", "exact"))
    assert "owed" not in said_in(plots.plot_ladder(ladder_of(), "self", "exact"))


def test_the_ladder_says_its_n_its_interval_its_floor_and_why_there_is_none(desk):
    _, scope = desk
    assert plots.basis(scope.ladder, "lineage", "exact").startswith("mean over 24 families, 95 % interval by family t")
    few = ladder_of(low=None, high=None, reason="not enough families: 12, needs 20", no_candidate=3)
    told = plots.basis(few, "lineage", "exact")
    assert "no interval: not enough families: 12, needs 20" in told
    assert "3 without a candidate, counted as 0" in told
    finding = plots.plot_ladder(scope.ladder, "lineage", "exact")
    assert "over 357 steps" in finding.sentence
    assert "random call of the same tool 0.02" in said_in(finding)


def test_axes_and_lanes_are_equal_at_all_stops(desk):
    specimen, scope = desk
    looks = [look(specimen, level) for level in BOUNDARIES]
    ladders = [plots.plot_ladder(scope.ladder, level, "exact").figure for level in BOUNDARIES]
    lanes = [plots.plot_lanes(seen).figure for seen in looks]
    for figures in (ladders, lanes):
        assert len({str((f.layout.xaxis.range, f.layout.yaxis.range, f.layout.height)) for f in figures}) == 1
    assert len({str(f.layout.yaxis.tickvals) for f in lanes}) == 1


def test_every_entry_but_the_step_stands_in_one_lane_and_what_is_left_out_is_hollow():
    specimen, _ = trials()
    for level, hollow in (("self", []), ("trace", []), ("lineage", ["t1/0001"]), ("key", ["t1/0001"])):
        finding = plots.plot_lanes(look(specimen, level))
        assert sorted(finding.table["entry_id"]) == ["t1/0001", "t2/0002"]
        assert finding.table.filter(eligible=False)["entry_id"].to_list() == hollow
        symbols = [trace.marker.symbol for trace in finding.figure.data if trace.mode.startswith("markers")]
        assert sum("open" in symbol for symbol in symbols) == len(hollow)
        assert "diamond" + ("-open" if hollow else "") in symbols


def test_a_same_answer_of_a_related_run_is_red_and_of_another_task_blue():
    red, blue = theme.PALETTE["light"]["leak"], theme.PALETTE["light"]["observed"]
    for other, colours in (("here", {red}), ("gone", {red, blue})):
        specimen, _ = trials(other=other)
        marks = [
            trace for trace in plots.plot_lanes(look(specimen, "self")).figure.data if trace.mode == "markers+text"
        ]
        assert {mark.marker.color for mark in marks if mark.marker.symbol == "diamond"} == colours


def test_the_wall_has_one_square_a_step_and_a_click_chooses_it(desk):
    specimen, scope = desk
    wall = plots.plot_wall(scope.steps, "lineage", "exact", specimen.step.transition_id)
    *traces, frame = wall.finding.figure.data
    squares = {trace.customdata[n][0]: (trace.x[n], trace.y[n]) for trace in traces for n in range(len(trace.x))}
    assert len(squares) == len(wall.order)
    assert sorted(wall.order) == sorted(scope.order)
    for told, (x, y) in squares.items():
        number = int(told.removeprefix("step ").partition(":")[0])
        assert wall.step_at([{"x": x, "y": y}]) == scope.order[number - 1]
    assert wall.step_at([{"x": frame.x[0], "y": frame.y[0]}]) == specimen.step.transition_id
    assert wall.step_at([]) is None
    assert wall.step_at([{"x": 0.99, "y": 1.0}]) is None


def test_the_wall_counts_what_is_right_lost_wrong_and_without_a_candidate():
    _, scope = trials()
    key = microscope.wall_key_html(plots.plot_wall(scope.steps, "lineage", "exact", "t0/0000"))
    assert Page(key).text == "■ 0 right now□ 2 lost to the boundary■ 1 wrong anyway"
    _, alone = scene((LOOK, "gone", "t0", "L0", "f0"), (LOOK, "gone", "t1", "L0", "f0"))
    wall = plots.plot_wall(alone.steps, "family", "exact", "t0/0000")
    assert "☒ 2 without a candidate" in Page(microscope.wall_key_html(wall)).text
    assert wall.finding.figure.data[0].marker.symbol == "square-x-open"


@pytest.mark.parametrize("count", [1, 7, 103, 559, 2_425, 40_000])
def test_the_wall_fits_whatever_the_number_of_steps(count):
    columns = plots._columns(count)
    side = 480 / columns
    assert side <= 20.9
    assert -(-count // columns) * side <= 140


def test_steps_go_round_and_the_next_one_that_changes_is_found():
    _, scope = trials()
    assert scope.order == ["t0/0000", "t1/0001", "t2/0002"]
    assert moved(scope, "t2/0002", 1) == "t0/0000"
    assert moved(scope, "t0/0000", -1) == "t2/0002"
    assert first_step(scope) == "t0/0000"
    assert next_changed(scope, "t0/0000", "lineage") == "t1/0001"
    assert next_changed(scope, "t1/0001", "lineage") == "t0/0000"
    assert next_changed(scope, "t2/0002", "trace") == "t2/0002"


def test_a_look_says_where_its_answer_comes_from_and_whether_it_is_what_happened():
    specimen, _ = crowd()
    assert look(specimen, "trace").sentence == (
        "For this step 1 of 9 entries is left out before scoring. Hit 1 comes from its own conversation, at 1.00 of the best "
        "score; its observation is exactly what happened."
    )
    far = look(specimen, "family", k=1)
    assert far.sentence.startswith(
        "For this step 2 of 9 entries are left out before scoring. Hit 1 comes from another task"
    )
    assert "differs from what happened (token F1 0.00)" in far.sentence
    small, _ = trials()
    assert "Hit 1 comes from its own conversation, and shares no feature that counts;" in look(small, "trace").sentence


def test_a_near_miss_stands_in_its_place_with_the_rank_out():
    specimen, _ = crowd()
    rows = [Page("<tr" + row).text for row in microscope.near_html(look(specimen, "family", k=1)).split("<tr")[2:]]
    assert rows[0] == "out1.00conversation t1/1nothinggone◇ same"
    assert rows[1].startswith("1")
    assert 'other task t2/2id="B7"here● F1 0.00' in rows[1]
    assert "1 left-out entry ranks above the last hit." in rows[1]


def test_an_entry_that_is_no_step_of_the_index_is_refused():
    specimen, _ = trials()
    with pytest.raises(NoEvidence, match="t9/0000 is no entry of the index"):
        Specimen(specimen.index, transition(0, LOOK, "x", trace_id="t9"))


def test_nothing_to_copy_is_said_with_its_reason_and_what_happened_still_stands():
    specimen, _ = scene((LOOK, "gone", "t0", "L0", "f0"), (LOOK, "gone", "t1", "L0", "f0"))
    alone = look(specimen, "lineage")
    assert "No candidate. Counted as score 0.empty view" in Page(microscope.near_html(alone)).text
    assert "no candidateobserved: what really happenedgone" in Page(microscope.diff_html(alone)).text
    assert alone.support == ("D", "tool")
    assert "Nothing is left to copy (empty view), which counts as score 0" in alone.sentence


def test_a_refusal_says_what_it_needs_and_keeps_the_answer_behind_a_disclosure():
    specimen, scope = trials()
    refused = microscope.diff_html(look(specimen, "family", refuse_below="A"))
    assert "Refused: no supporting precedent (needs A or better, has B)" in refused
    assert refused.index("<details>") < refused.index("here")
    assert "refused" not in microscope.diff_html(look(specimen, "trace", refuse_below="A"))
    assert "would refuse 3 of 3 steps here" in microscope.support_html(scope.steps, "key", "A")


def test_an_empty_observation_is_a_real_one_and_said():
    specimen, _ = trials(said="")
    assert (
        "predicted: copied from hit 1hereobserved: what really happenedempty result"
        in Page(microscope.diff_html(look(specimen, "family"))).text
    )
    assert "exactly what happened" in microscope.diff_html(look(specimen, "self"))
    other, _ = trials(other="")
    told = Page(microscope.diff_html(look(other, "family"))).text
    assert "predicted: copied from hit 1empty resultobserved: what really happenedgone" in told
    assert "empty result" in microscope.near_html(look(specimen, "self"))


def test_two_documents_are_compared_by_leaf_the_differing_ones_first():
    specimen, _ = trials(
        said='{"id":"A1","seats":{"left":7},"tags":[1]}', other='{"id":"A1","seats":{"left":9},"new":true}'
    )
    page = microscope.diff_html(look(specimen, "family"))
    assert "leafpredictedobserved/seats/left97/tags/0absent1/newtrueabsent1 of 4 leaves equal" in Page(page).text
    assert "<del>9</del>" in page
    assert "<ins>7</ins>" in page


@given(texts, texts)
@settings(max_examples=80, deadline=None)
def test_a_word_diff_keeps_both_texts_whole(predicted, observed):
    left, right = microscope.word_diff(predicted, observed)
    assert Page(left).text == predicted.replace("\0", "␀")
    assert Page(right).text == observed.replace("\0", "␀")
    assert set(Page(left).tags) <= {"del"}
    assert set(Page(right).tags) <= {"ins"}


def test_a_long_text_is_shown_whole_and_without_marks():
    left, right = microscope.word_diff("a " * 5_000, "b " * 5_000)
    assert "<" not in left + right


@given(texts.filter(str.strip), texts)
@example("pay $5 and $6 <b>", "<script>$x$</script>")
@settings(max_examples=25, deadline=None)
def test_what_was_recorded_is_shown_as_text(action, said):
    specimen, scope = scene((action, said, "t0", "L0", "f0"), (action + "x", said + "y", "t1", "L1", "f1"))
    seen = look(specimen, "self")
    pieces = [microscope.step_html(seen, scope), microscope.near_html(seen), microscope.diff_html(seen)]
    pieces += [microscope.sentence_html(seen), microscope.head_html(action, said)]
    for page in map(Page, pieces):
        assert set(page.tags) <= OURS
        assert page.names <= NAMES
    drawn = [
        piece
        for trace in plots.plot_lanes(seen).figure.data
        if trace.customdata is not None
        for piece in trace.customdata
    ]
    assert all("$" not in text and set(Page(text).tags) <= {"br"} for [text] in drawn)


def test_a_secret_is_nowhere_on_the_page_even_where_the_answers_differ_in_it():
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    specimen, scope = trials(said=f"key {secret}", other=f"key {secret[::-1]}")
    page = microscope.page_html(scope, specimen, "corpus")
    assert secret not in page
    assert "[AWS key id]" in page
    other, _ = trials(said=f"key {secret}", other="key AKIA" + "PONMLKJIHGFEDCBA")
    assert "They differ only in what is masked" in microscope.diff_html(look(other, "family"))


def test_the_static_page_has_every_boundary_and_needs_no_network():
    hostile = "</script><script>alert(1)</script>"
    specimen, scope = trials(said=hostile)
    page = microscope.page_html(scope, specimen, hostile)
    body = Page(page.rpartition("</head>")[2])
    assert set(body.tags) <= OURS | {"body", "input", "label", "em", "script"}
    assert not body.names & {"src", "href", "onerror", "onload"}
    assert "<script>alert" not in page
    assert body.tags.count("input") == 5
    assert all(plots.headline(scope.ladder, level, "exact") in body.text for level in BOUNDARIES)
    assert page == microscope.page_html(scope, specimen, hostile)


def test_a_step_that_was_not_asked_can_still_be_looked_at(desk):
    specimen, scope = trials()
    others = scope._replace(steps=scope.steps.filter(pl.col("step_id") != "t0/0000"))
    assert "not among the steps below" in microscope.step_html(look(specimen, "self"), others)
    drawn = plots.plot_wall(others.steps, "self", "exact", "t0/0000").finding.figure.data
    assert "square-open" not in [trace.marker.symbol for trace in drawn]


def test_the_control_has_one_stop_a_boundary_and_a_kind_for_what_is_never_left_out():
    control = Boundary(level=1, counts=[1, 2, 3, 4, 5, 6])
    assert [name for name, _ in KINDS] == [*(stop.name for stop in theme.BOUNDARIES.values()), "other tasks"]
    assert (control.level, list(control.counts)) == (1, [1, 2, 3, 4, 5, 6])
    assert 'setAttribute("aria-valuetext", "left out: "' in control._esm


def test_the_command_line_writes_the_page_of_one_step(xlab, tmp_path):
    xlab("import", bundled("desk_tools.jsonl"))
    xlab("split")
    xlab("index")
    step = Lab(tmp_path / ".lab").transitions()["id"][0]
    ran = xlab("inspect", "--transition", step, "--out", "one.html", "--json")
    assert ran.code == 0, ran
    assert (tmp_path / "one.html").read_text(encoding="utf-8").startswith("<!doctype html>")


NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "explore" / "04_nearest_real_transitions.py"


def notebook(**defs):
    """The output of the whole notebook as one page, and what its cells define."""
    spec = importlib.util.spec_from_file_location("notebook_04", NOTEBOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, found = module.app.run(defs=defs)
    return "\n".join(output.text for output in outputs if hasattr(output, "text")), found


def controls(level=2, metric="exact", k=5, below=None):
    chosen = {"metric": metric, "k": k, "below": below}
    knob = Boundary(level=level)
    values = {name: SimpleNamespace(value=value) for name, value in chosen.items()}
    return values | {"knob": knob, "boundary": SimpleNamespace(value={"level": level})}


def test_the_notebook_follows_the_boundary_the_metric_and_k():
    page, found = notebook(**controls(level=4, metric="token_f1", k=2, below="A"))
    assert (found["level"], len(found["seen"].hits), found["seen"].refused) == ("key", 2, True)
    assert found["title"] == plots.headline(found["scope"].ladder, "key", "token_f1")
    assert found["title"] in page
    assert "Refused: no supporting precedent (needs A or better, has B)" in page
    assert list(found["knob"].counts) == list(found["specimen"].counts)


def opened(path):
    return {"path": SimpleNamespace(value=str(path)), "asked": SimpleNamespace(value="held_out")}


def test_the_notebook_opens_a_workspace_as_it_stands_and_keeps_its_table(tmp_path):
    lab = Lab(tmp_path / "mine")
    lab.import_traces(bundled("desk_tools.jsonl"))
    lab.split()
    lab.index()
    rows = len(lab.store.rows())
    _, found = notebook(**opened(tmp_path / "mine"))
    assert found["lab"].path == tmp_path / "mine"
    assert len(lab.store.rows()) == rows
    assert len(list((tmp_path / "mine" / "cache").glob("microscope-*"))) == 1


def test_the_notebook_names_both_values_of_a_stale_index_and_shows_no_control(tmp_path):
    lab = Lab(tmp_path / "mine")
    lab.import_traces(bundled("desk_tools.jsonl"))
    lab.split()
    lab.index()
    lab.split(seed=5)
    page, found = notebook(**opened(tmp_path / "mine"))
    assert "the index is stale: it was built with lineage_table sha256:" in page
    assert "scope" not in found
    assert "One held-out step" not in page


@pytest.mark.parametrize(("lines", "told"), [(1, "1 family"), (0, "empty")])
def test_the_notebook_says_what_a_file_lacks(tmp_path, lines, told):
    whole = bundled("desk_tools.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(whole[:lines]), encoding="utf-8")
    page, _ = notebook(**opened(tmp_path / "some.jsonl"))
    assert told in page
    assert "nothing to look at, controls are off" in page


def test_an_empty_table_is_no_finding():
    assert microscope_ladder(pl.DataFrame(schema=STEPS)).height == 0


def test_law_15_a_secret_at_the_cut_of_a_long_text_is_masked_and_the_cut_is_said():
    key = "AK" + "IA" + "ABCD1234" * 2
    shown = microscope._head("x" * 390 + " " + key + " y" * 300)
    assert key[:8] not in shown
    assert shown.endswith("… (1,011 characters)")
    assert microscope._head("short <b>") == "short &lt;b&gt;"
