"""What looks like a secret is counted and placed, and never shown."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from experiential_lab.evidence.secrets import find_secrets, masked

# Put together here, so that no file of the project holds what a scanner would take for a secret.
SECRETS = {
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEabc\n-----END RSA " + "PRIVATE KEY-----",
    "provider key": "sk-" + "proj-" + "a1B2" * 8,
    "GitHub token": "gh" + "p_" + "Ab12" * 9,
    "AWS key id": "AK" + "IA" + "ABCD1234" * 2,
    "Google key": "AI" + "za" + "x" * 35,
    "Slack token": "xo" + "xb-" + "1234567890-abc",
    "JSON web token": "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0In0." + "c2lnbmF0dXJl",
    "password in a URL": "postgres://anna:" + "hunter22" + "@db/x",
    "bearer token": "Authorization: Bearer " + "abcdef0123456789abcdef",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_each_kind_is_found_once_and_masked_by_its_name(kind: str):
    text = f"before {SECRETS[kind]} after"
    assert [each.kind for each in find_secrets(text.encode())] == [kind]
    shown = masked(text)
    assert f"[{kind}]" in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert not any(part in shown for part in ("hunter22", "a1B2", "Ab12", "MIIE", "ABCD1234", "0123456789abcdef"))


@pytest.mark.parametrize(
    "text",
    [
        "task-sk-1",
        "the password is not here",
        "sk-short",
        "https://example.org/a@b",
        "BEGIN PUBLIC KEY",
        "AKIA",
        "eyJ",
        "Bearer me",
    ],
)
def test_an_ordinary_word_is_no_secret(text: str):
    assert find_secrets(text.encode()) == []
    assert masked(text) == text


@given(
    st.lists(st.sampled_from([*SECRETS.values(), "x", " ", "é", "\n", "sk-", "AKIA", '"']), max_size=12).map("".join)
)
def test_a_text_that_was_masked_holds_no_secret_and_a_place_is_a_place_of_the_text(text: str):
    data = text.encode()
    for each in find_secrets(data):
        assert 0 <= each.start < each.end <= len(data)
    assert find_secrets(masked(text).encode()) == []


def test_many_secrets_are_all_counted_in_order():
    data = "\n".join(list(SECRETS.values()) * 3).encode()
    found = find_secrets(data)
    assert len(found) == 3 * len(SECRETS)
    assert found == sorted(found, key=lambda each: each.start)
