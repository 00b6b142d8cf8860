"""Characters that several tokens share."""

from ngrpo.report.token_texts import token_texts


class Bytes:
    """A token a byte."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def test_a_character_stands_at_its_last_token():
    ids = list("a\u00e9\U0001f600b".encode())
    assert token_texts(Bytes(), ids) == [
        "a",
        "",
        "\u00e9",
        "",
        "",
        "",
        "\U0001f600",
        "b",
    ]


def test_what_is_no_character_is_shown_as_such():
    assert token_texts(Bytes(), [0x61, 0xC3]) == ["a", "\ufffd"]
    assert "".join(token_texts(Bytes(), [0xFF] * 5 + [0x61])).endswith("a")
    assert token_texts(Bytes(), []) == []


def test_nothing_is_lost():
    text = "So \u4e2d\u6587 and \U0001f600."
    assert "".join(token_texts(Bytes(), list(text.encode()))) == text
