"""The palette is readable and told apart by every eye; numbers have one spelling."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiential_lab.evidence.trace import PAIRINGS
from experiential_lab.retrieval.views import BOUNDARIES
from experiential_lab.show import theme

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB; the distance is Euclidean in OKLab, times 100.
EYES = {
    "all cones": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
LMS = np.array([[0.4122214708, 0.2119034982, 0.0883024619], [0.5363325363, 0.6806995451, 0.2817188376], [0.0514459929, 0.1073969566, 0.6299787005]])  # fmt: skip
LAB = np.array([[0.2104542553, 1.9779984951, 0.0259040371], [0.7936177850, -2.4285922050, 0.7827717662], [-0.0040720468, 0.4505937099, -0.8086757660]])  # fmt: skip

modes = pytest.mark.parametrize("mode", ["light", "dark"])


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def distance(one: str, other: str, eye: str) -> float:
    seen = [np.cbrt(np.clip(EYES[eye] @ linear(colour), 0, 1) @ LMS) @ LAB for colour in (one, other)]
    return 100 * float(np.linalg.norm(seen[0] - seen[1]))


@modes
def test_text_has_a_contrast_of_four_and_a_half_and_a_mark_of_three_on_page_and_panel(mode):
    hue = theme.PALETTE[mode]
    least = {name: min(contrast(hue[name], hue[ground]) for ground in theme.GROUNDS) for name in hue}
    assert {name for name in theme.TEXT if least[name] < 4.5} == set()
    assert {name for name in theme.HUES if least[name] < 3.0} == set()


@modes
@pytest.mark.parametrize("eye", ["protan", "deutan", "tritan", "all cones"])
def test_two_hues_that_share_a_figure_stay_apart_for_every_eye(mode, eye):
    hue = theme.PALETTE[mode]
    pairs = {pair for shared in theme.SHARED for pair in itertools.combinations(shared, 2)}
    close = {pair: round(distance(hue[pair[0]], hue[pair[1]], eye), 1) for pair in pairs}
    assert {pair: far for pair, far in close.items() if far < 9.4} == {}


@modes
def test_red_words_can_be_read_as_text(mode):
    hue = theme.PALETTE[mode]
    assert min(contrast(hue["leak"], hue[ground]) for ground in theme.GROUNDS) >= 4.5


def test_both_modes_define_the_same_names_and_the_style_sheet_holds_them_all():
    light, dark = (set(theme.PALETTE[mode]) for mode in ("light", "dark"))
    assert light == dark
    for colour in [*theme.PALETTE["light"].values(), *theme.PALETTE["dark"].values()]:
        assert colour in theme.css()


def test_names_and_orders_are_those_of_the_house():
    assert theme.RUNGS == ("observed", "predicted", "judged", "measured")
    assert tuple(theme.BOUNDARIES) == BOUNDARIES
    assert {*theme.PAIRING_RAMP, "user_reply"} == set(PAIRINGS)
    assert all(set(words) == set("ABCD") for words in theme.SUPPORT.values())


def test_a_stronger_pairing_is_drawn_darker():
    assert list(theme.PAIRING_RAMP.values()) == sorted(theme.PAIRING_RAMP.values(), reverse=True)


@modes
def test_the_template_draws_no_legend_and_no_background(mode):
    layout = theme.template(mode).layout
    assert (layout.showlegend, layout.paper_bgcolor, layout.plot_bgcolor) == (False, "rgba(0,0,0,0)", "rgba(0,0,0,0)")
    assert layout.font.color == theme.PALETTE[mode]["ink"]


def test_a_formula_in_a_trace_is_never_typeset():
    assert theme.PLOTLY_CONFIG["typesetMath"] is False


@pytest.mark.parametrize(
    ("cost_nusd", "told"),
    [(None, "unknown"), (0, "$0"), (1, "1 n$"), (999, "999 n$"), (1_000, "1.00 µ$"), (12_345_678, "12.3 m$"), (999_499_999, "999 m$"), (999_500_000, "$1.00"), (1_234_567_000_000, "$1,234.57")],
)  # fmt: skip
def test_money_is_told_in_the_largest_unit_that_keeps_three_digits(cost_nusd, told):
    assert theme.money(cost_nusd) == told


@given(st.integers(1, 10**15))
def test_money_is_never_told_further_off_than_half_of_its_last_digit(cost_nusd):
    told = theme.money(cost_nusd)
    unit = {"n$": 1, "µ$": 10**3, "m$": 10**6, "$": 10**9}[told.lstrip("0123456789., ") if told[0] != "$" else "$"]
    value = Fraction(told.strip("nµm$ ").replace(",", ""))
    digits = len(told.partition(".")[2].rstrip("nµm$ "))
    assert abs(value * unit - cost_nusd) <= Fraction(unit, 2 * 10**digits) + Fraction(unit, 10**9)


@pytest.mark.parametrize(
    ("latency_ns", "told"),
    [(None, "unknown"), (0, "0 s"), (7, "7 ns"), (1_234_567, "1.23 ms"), (59_900_000_000, "59.9 s"), (59_950_000_000, "1:00"), (3_492_000_000_000, "58:12")],
)  # fmt: skip
def test_a_duration_is_told_with_its_unit(latency_ns, told):
    assert theme.duration(latency_ns) == told


def test_numbers_names_and_digests_have_one_spelling():
    assert (theme.number(2454), theme.number(-3)) == ("2,454", "−3")
    assert (theme.plural(1, "step"), theme.plural(0, "step")) == ("1 step", "0 steps")
    assert theme.short("sha256:0123456789abcdef") == theme.short("0123456789abcdef") == "01234567"
    assert (theme.size(512), theme.size(64 << 10), theme.size(1 << 20)) == ("512 B", "64 KiB", "1 MiB")
    assert theme.rgba("#2263BE", 0.5) == "rgba(34,99,190,0.5)"
