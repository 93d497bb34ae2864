"""Tasks are found in shops, have statements of their own, and what is planted among them is as it is labelled."""

from collections import Counter
from fractions import Fraction

import pytest

from experiential_lab.evaluation.tasks import GRADES, KINDS, KNOWS, MOST_FAMILIES, PAIRS, make_tasks, plan_tasks
from experiential_lab.evidence.lineage import near_duplicates, shingles

TASKS = make_tasks(24, 7)
PLAN = plan_tasks("p", 240, 7)
BY_ID = {planted.task.task_id: planted for planted in PLAN}
FIRSTS = {planted.family: planted.task for planted in PLAN if planted.role == "first"}


def jaccard(one: str, other: str) -> Fraction:
    here, there = shingles(one), shingles(other)
    return Fraction(len(here & there), len(here | there))


def test_no_two_statements_are_near_duplicates_however_many_are_made():
    tasks = make_tasks(MOST_FAMILIES, 3)
    assert len({task.facts["email"] for task in tasks}) == MOST_FAMILIES
    assert near_duplicates([task.statement for task in tasks], Fraction(9, 10)) == []


def test_the_nearest_wording_is_often_another_task():
    """So that the nearest precedent can be wrong: same sentences, another state of the shop."""
    other_goal = 0
    for task in TASKS:
        rest = [other for other in TASKS if other is not task]
        nearest = max(rest, key=lambda other, task=task: jaccard(task.statement, other.statement))
        here, there = KINDS[task.kind], KINDS[nearest.kind]
        other_goal += here.wish == there.wish and here.goal != there.goal
    assert other_goal >= 10


@pytest.mark.parametrize("families", [-1, 0, 1, MOST_FAMILIES + 1])
@pytest.mark.parametrize("make", [make_tasks, lambda families, seed: plan_tasks("p", families, seed)])
def test_too_few_or_too_many_families_are_refused_with_both_numbers(make, families):
    with pytest.raises(ValueError, match=rf"^{families} families asked for, 2 to {MOST_FAMILIES} can be made"):
        make(families, 7)


def test_tasks_of_another_seed_are_other_tasks():
    assert {task.statement for task in make_tasks(20, 8)}.isdisjoint(task.statement for task in TASKS)


def test_a_plan_of_240_families_has_400_tasks_and_600_trials_and_plants_what_the_study_asks_for():
    roles = Counter(planted.role for planted in PLAN)
    assert roles == {"first": 240, "duplicate": 60, **{f"paraphrase_{grade}": 25 for grade in GRADES}}
    assert (len(BY_ID), sum(len(planted.trials) for planted in PLAN)) == (400, 600)
    assert sum(planted.twin_of is not None for planted in PLAN) == 100


def test_a_family_has_one_person_and_one_shop_that_no_other_family_has_and_no_trial_twice():
    owners = {(planted.task.facts["email"], planted.task.desk_seed, planted.family) for planted in PLAN}
    assert [len(set(column)) for column in zip(*owners, strict=True)] == [240, 240, 240]
    trials = [(planted.family, trial) for planted in PLAN for trial in planted.trials]
    assert len(set(trials)) == len(trials)


def test_a_duplicate_says_the_same_word_by_word_and_a_paraphrase_does_not():
    for planted in PLAN:
        first = FIRSTS[planted.family]
        assert (planted.task.facts, planted.task.kind) == (first.facts, first.kind)
        assert (planted.task.statement == first.statement) == (not planted.role.startswith("paraphrase"))


def test_a_paraphrase_goes_as_far_as_its_grade():
    bounds = {"word": (0.94, 0.98), "order": (0.85, 0.95), "frame": (0.35, 0.7), "all": (0, 0.25)}
    for planted in PLAN:
        if planted.role.startswith("paraphrase_"):
            low, high = bounds[planted.role.removeprefix("paraphrase_")]
            assert low <= jaccard(planted.task.statement, FIRSTS[planted.family].statement) <= high


def test_a_twin_looks_alike_and_ends_otherwise():
    for planted in PLAN:
        if planted.twin_of:
            other = BY_ID[planted.twin_of]
            assert (other.task.kind, planted.task.kind) in PAIRS
            assert KINDS[other.task.kind].goal != KINDS[planted.task.kind].goal
            assert 0.4 < jaccard(other.task.statement, planted.task.statement) < 0.9
            assert (planted.task.wording, planted.task.facts["item"]) == (other.task.wording, other.task.facts["item"])


@pytest.mark.parametrize("seed", [7, 8])
def test_at_point_nine_no_text_unites_what_is_not_one_family(seed):
    plan = plan_tasks("p", 240, seed)
    families = {planted.task.statement: planted.family for planted in plan}
    assert len(families) == 240 + 100
    for one, other, _ in near_duplicates(list(families), Fraction(9, 10)):
        assert families[one] == families[other]


def test_every_kind_of_task_and_every_way_to_name_an_order_is_in_the_plan():
    assert {task.kind for task in FIRSTS.values()} == set(KINDS)
    assert {task.wording.knows for task in FIRSTS.values()} == set(KNOWS)
