"""Records: one shape, one spelling, one digest."""

import importlib
import json
import pkgutil

import hypothesis.strategies as st
import msgspec
import orjson
import pytest
import rfc8785
from hypothesis import given

import experiential_lab
from experiential_lab.records import SAFE_INTEGER, Record, Span, canonical_bytes, canonical_json, digest

texts = st.text(st.characters(exclude_categories=["Cs"]))
keys = st.text(st.characters(max_codepoint=126, min_codepoint=32))
profile = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE_INTEGER, SAFE_INTEGER) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def every_record() -> list[type[Record]]:
    for module in pkgutil.walk_packages(experiential_lab.__path__, "experiential_lab."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, waiting = [], [Record]
    while waiting:
        for subclass in waiting.pop().__subclasses__():
            found.append(subclass)
            waiting.append(subclass)
    return found


@given(profile)
def test_the_standard_library_orjson_msgspec_and_rfc_8785_write_the_same_bytes_on_the_profile(value):
    ours = msgspec.json.encode(value, order="sorted")
    assert ours == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert ours == orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    assert ours == rfc8785.dumps(value)
    assert canonical_json(value).encode() == ours


def test_every_record_is_frozen_keyword_only_and_refuses_unknown_fields():
    for record in every_record():
        config = record.__struct_config__
        assert config.frozen, f"{record.__name__} is not frozen"
        assert config.forbid_unknown_fields, f"{record.__name__} takes unknown fields"
        assert config.omit_defaults, f"{record.__name__} writes absent optionals"
        with pytest.raises(TypeError, match=r"(?i)positional|argument"):
            record(*range(1, 2 + len(record.__struct_fields__)))


@pytest.mark.parametrize("record", every_record(), ids=lambda record: record.__name__)
def test_no_record_takes_a_positional_argument_or_holds_a_float(record: type[Record]):
    with pytest.raises(TypeError):
        record("one")
    assert not holds_float(msgspec.inspect.type_info(record)), f"{record.__name__} has a digest and a float"


def holds_float(kind: object, seen: tuple[object, ...] = ()) -> bool:
    if isinstance(kind, msgspec.inspect.FloatType):
        return True
    if kind in seen or not isinstance(kind, msgspec.inspect.Type):
        return False
    seen = (*seen, kind)
    parts = (
        [field.type for field in getattr(kind, "fields", ())] if isinstance(kind, msgspec.inspect.StructType) else []
    )
    for name in ("item_type", "key_type", "value_type"):
        parts.append(getattr(kind, name, None))
    parts += [*getattr(kind, "item_types", ()), *getattr(kind, "types", ())]
    return any(holds_float(part, seen) for part in parts)


def test_equal_records_have_equal_digests_whatever_the_order_of_their_fields():
    one = Span(source="s", offset=1, size=2, end=3, quote="q")
    other = Span(quote="q", end=3, size=2, offset=1, source="s", located="exact")
    assert canonical_bytes(one) == b'{"end":3,"offset":1,"quote":"q","size":2,"source":"s"}'
    assert digest(one) == digest(other)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_nan_and_infinity_are_refused_and_never_written_as_null(value):
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(value)


def test_a_whole_float_and_an_integer_have_one_spelling():
    assert canonical_json({"b": 1.0, "a": 2.5}) == canonical_json({"a": 2.5, "b": 1}) == '{"a":2.5,"b":1}'
