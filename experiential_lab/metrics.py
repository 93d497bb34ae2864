"""Agreement of two texts, or of two JSON documents, without a judge.

- Every metric is an integer number of millionths, rounded down: 1_000_000 is full agreement. Sums are exact.
- Two texts are equal only under a declared normaliser; `NORMALISERS` is the closed list.
- The truth decides what is counted, never the prediction: a JSON metric of an observation that is no JSON document is
  None (not counted); a prediction that is no JSON document then scores 0.
- An empty prediction of an empty observation is right.
- A JSON text is read strictly: repeated keys, NaN and infinity, lone surrogates and endless nesting are refused. A bool
  is no number: `true` and `1` differ.

Not covered: meaning. Two answers that say the same in other words agree little.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from experiential_lab.records import Json, canonical_json

ONE = 1_000_000
NESTING = 100  # levels of a JSON text; stated, because what Python's own stack allows depends on the caller

_WORDS = re.compile(r"\w+")


def normalised(text: str) -> str:
    """`text` case-folded, every run of white space one space, none at the ends.

    >>> normalised("  Refund\\n it ")
    'refund it'
    """
    return " ".join(text.casefold().split())


NORMALISERS: dict[str, Callable[[str], str]] = {"exact": str, "case_and_space": normalised}


def exact_match(predicted: str, observed: str, *, normaliser: str = "exact") -> int:
    """1_000_000 when both texts are equal under `normaliser`, else 0.

    Raises:
        KeyError: `normaliser` is not one of NORMALISERS.
    """
    fold = NORMALISERS[normaliser]
    return ONE if fold(predicted) == fold(observed) else 0


def words(text: str) -> list[str]:
    """The words of the case-folded text, in order: runs of letters, digits and underscores of any script."""
    return _WORDS.findall(text.casefold())


def token_f1(predicted: str, observed: str) -> int:
    """Harmonic mean of precision and recall over words with their counts; order is ignored.

    Two texts without any word agree only when they are equal but for case and white space.

    >>> token_f1("your order was shipped", "the order was lost")
    500000
    """
    ours, theirs = words(predicted), words(observed)
    if not ours and not theirs:
        return exact_match(predicted, observed, normaliser="case_and_space")
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared * ONE // (len(ours) + len(theirs))


def json_shape(predicted: str, observed: str) -> int | None:
    """Jaccard overlap of the leaf pointers of both documents; None when `observed` is no JSON document."""
    pair = _documents(predicted, observed)
    if not isinstance(pair, tuple):
        return pair
    ours, theirs = pair
    return len(ours.keys() & theirs.keys()) * ONE // len(ours.keys() | theirs.keys())


def json_leaf_match(predicted: str, observed: str) -> int | None:
    """Share of the leaf pointers of either document at which both hold the same value; None as for `json_shape`."""
    pair = _documents(predicted, observed)
    if not isinstance(pair, tuple):
        return pair
    ours, theirs = pair
    return len(ours.items() & theirs.items()) * ONE // len(ours.keys() | theirs.keys())


def _documents(predicted: str, observed: str) -> tuple[dict[str, str], dict[str, str]] | int | None:
    """Leaves of both documents, or the score that is known without them."""
    theirs = _document(observed)
    if theirs is None:
        return None
    ours = _document(predicted)
    return 0 if ours is None else (ours, theirs)


def _document(text: str) -> dict[str, str] | None:
    """Leaf pointer to canonical value, or None: a document is an object or an array; a bare number is only text."""
    try:
        value = strict_json(text)
    except ValueError:
        return None
    return (
        {pointer: canonical_json(leaf) for pointer, leaf in leaves(value)} if isinstance(value, (dict, list)) else None
    )


def leaves(value: Json, *, numbered: bool = True) -> Iterator[tuple[str, Json]]:
    """(RFC 6901 pointer, value) of each leaf: a scalar, or an object or array with nothing inside.

    Without `numbered`, every position of an array is `~`, which no escaped key can be.

    >>> dict(leaves({"a/b": [1, {}]}))
    {'/a~1b/0': 1, '/a~1b/1': {}}
    """
    return _leaves(value, "", numbered)


def _leaves(value: Json, pointer: str, numbered: bool) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", numbered)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, f"{pointer}/{number if numbered else '~'}", numbered)
    else:
        yield pointer, value


def strict_json(text: str) -> Json:
    """The JSON value of `text`, when every strict reader would see the same value.

    Raises:
        ValueError: `text` is no JSON, repeats a key, holds a number that is not finite or has thousands of digits, holds
            half of a surrogate pair, or nests too deeply.
    """
    try:
        value: Json = json.loads(text, object_pairs_hook=_object, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("JSON nests too deeply for this Python") from error
    if text.count("{") + text.count("[") > NESTING and _depth(value) > NESTING:
        raise ValueError(f"JSON nests {_depth(value)} levels deep, at most {NESTING} are read")
    canonical_json(
        value
    ).encode()  # refuses what has no canonical form: a number beyond a double, half a surrogate pair
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is repeated")
    return value


def _depth(value: Json) -> int:
    """Levels of nesting, counted layer by layer; a scalar has none."""
    levels, layer = 0, [value]
    while layer := [item for item in layer if isinstance(item, (dict, list))]:
        levels += 1
        layer = [child for item in layer for child in (item.values() if isinstance(item, dict) else item)]
    return levels


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")
