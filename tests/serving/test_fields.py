"""Bodies are read with types and ranges; whatever else is in them is refused in a sentence."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngrpo.errors import SettingError
from ngrpo.serving.fields import Fields, read_object


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"3", b"null", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}',
        b'{"a": [-1e999]}', b"\xff\xfe", b"[" * 100_000,
        b'{"a":' * 40 + b"1" + b"}" * 40, b'{"a": 1' + b"0" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_object_of_json_is_refused(body: bytes) -> None:
    with pytest.raises(SettingError):
        read_object(body)


@pytest.mark.parametrize("coding", ["utf-8", "utf-16", "utf-32"])
def test_bodies_are_as_deep_as_they_may_be_and_no_deeper(coding: str) -> None:
    def nested(levels: int) -> bytes:
        return ('{"a":' + "[" * (levels - 1) + "1" + "]" * (levels - 1) + "}").encode(coding)

    read_object(nested(32))
    with pytest.raises(SettingError, match="nested too deeply"):
        read_object(nested(33))
    many: dict[str, list[Any]] = {"a": [[]] * 100, "b": [{}] * 100}
    assert read_object(json.dumps(many).encode(coding)).rest() == many


WRONG: list[tuple[str, tuple[Any, ...], list[Any]]] = [
    ("whole", (0, 9, 1), [10, -1, 1.0, "1", True, [1], {}]),
    ("real", (0.5, 9.0, 1.0), [0, -1.0, "1", True, [1.0], 9.1, float("nan"), 10**400]),
    ("flag", (True,), [0, 1, "true", []]),
    ("text", (), [1, True, [], "\ud800"]),
    ("ids", (3,), [1, "12", [1.0], [True], [None], [1, 2, 3, 4], {}]),
    ("objects", (2,), [[], [1], {}, [{}, {}, {}], "x", None]),
    ("object", (), [[], 1, "x"]),
]


@pytest.mark.parametrize(("kind", "arguments", "values"), WRONG, ids=[kind for kind, _, _ in WRONG])
def test_a_value_of_another_type_or_range_is_refused_by_its_name(kind: str, arguments: Any, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(SettingError, match="^inner.field="):
            getattr(Fields({"field": value}, "inner"), kind)("field", *arguments)


def test_what_nobody_has_read_is_refused_with_what_there_is() -> None:
    fields = Fields({"n": 2, "nn": 3})
    assert fields.whole("n", 1, 5, 1) == 2
    with pytest.raises(SettingError, match="'nn' is not served here; leave it out, or choose one of n"):
        fields.end()


def test_null_is_absent() -> None:
    fields = Fields({"n": None, "ids": None, "flag": None})
    assert (fields.whole("n", 1, 5, 4), fields.ids("ids", 2), fields.flag("flag", True)) == (4, None, True)
    fields.end()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_any_json_is_read_or_refused(value: Any) -> None:
    said = ""
    try:
        fields = read_object(json.dumps(value).encode())
        fields.whole("n", 0, 1, 0)
        fields.end()
    except SettingError as refused:
        said = str(refused)
    assert said.endswith(".") or set(value) <= {"n"}
