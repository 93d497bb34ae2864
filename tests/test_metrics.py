"""Agreement without a judge. Each name is the promise."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from experiential_lab.metrics import (
    ONE,
    exact_match,
    json_leaf_match,
    json_shape,
    leaves,
    normalised,
    strict_json,
    token_f1,
    words,
)

texts = st.text(alphabet="abAB _1.é日İß’\n", max_size=30)


def test_a_match_is_exact_unless_a_normaliser_is_declared():
    assert exact_match("Refund  it", "refund it") == 0
    assert exact_match("Refund  it", "refund it", normaliser="case_and_space") == ONE
    with pytest.raises(KeyError, match="stemmed"):
        exact_match("a", "a", normaliser="stemmed")


@settings(deadline=None)
@given(texts, texts)
def test_token_f1_is_the_harmonic_mean_of_precision_and_recall_rounded_down(a, b):
    ours, theirs = Counter(words(a)), Counter(words(b))
    shared, total = (ours & theirs).total(), ours.total() + theirs.total()
    assert token_f1(a, b) == (2 * shared * ONE // total if total else ONE * (normalised(a) == normalised(b)))
    assert token_f1(a, b) == token_f1(b, a)
    assert token_f1(a, a) == ONE


def test_repeated_words_count_as_often_as_both_have_them():
    assert token_f1("no no no yes", "no no maybe") == 2 * 2 * ONE // 7


def test_an_empty_prediction_of_an_empty_observation_is_right_and_of_another_wrong():
    assert (token_f1("", ""), token_f1("", "gone"), token_f1("!!", "??")) == (ONE, 0, 0)


def test_the_observation_decides_whether_a_json_metric_counts():
    assert json_shape('{"a":1}', "no document") is None
    assert json_shape('{"a":1}', "7") is None
    assert json_shape("no document", '{"a":1}') == json_leaf_match("no document", '{"a":1}') == 0


def test_shape_compares_pointers_and_leaf_match_their_values():
    predicted, observed = '{"a":1,"b":{"c":[2,3]}}', '{"a":1,"b":{"c":[2]},"d":{}}'
    assert json_shape(predicted, observed) == 2 * ONE // 4
    assert json_leaf_match('{"a":1,"b":2}', '{"a":1,"b":3,"c":4}') == ONE // 3


def test_a_bool_is_no_number_and_a_whole_float_is_an_integer():
    assert json_leaf_match('{"a":true}', '{"a":1}') == 0
    assert json_leaf_match('{"a":1.0}', '{"a":1}') == ONE
    assert json_leaf_match('{"a":"1"}', '{"a":1}') == 0


def test_keys_are_escaped_so_that_two_paths_never_share_a_pointer():
    assert dict(leaves({"a/b": 1, "a": {"b": 2}, "~": 3})) == {"/a~1b": 1, "/a/b": 2, "/~0": 3}
    assert [pointer for pointer, _ in leaves([[], {"0": None}], numbered=False)] == ["/~", "/~/0"]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        "[NaN]",
        "[1e999]",
        "Infinity",
        '"\\ud800"',
        "[" * 101 + "]" * 101,
        "[" * 100_000,
        "1" * 5000,
        "{",
    ],
)
def test_what_readers_would_read_differently_is_no_json(text):
    with pytest.raises(ValueError, match=r".+"):
        strict_json(text)


def test_a_hundred_levels_are_read_whatever_the_caller_is_nested_in():
    def nested(levels):
        return strict_json("[" * 100 + "]" * 100) if not levels else nested(levels - 1)

    assert nested(300) == strict_json("[" * 100 + "]" * 100)
