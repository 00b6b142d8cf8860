"""Words as rows of the embedding."""

import pytest

from ngrpo.errors import SettingError
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.analysis.single_token_words import EmbeddedVocabulary


@pytest.fixture(scope="module")
def demo() -> EmbeddedVocabulary:
    return EmbeddedVocabulary.of(ModelSource())


def test_a_word_is_looked_up_as_inside_a_sentence(demo: EmbeddedVocabulary):
    assert demo.text(demo.find("seven")) == " seven"
    assert demo.text(demo.find("+")) == "+"  # no token with the space


def test_no_single_token_is_refused(demo: EmbeddedVocabulary):
    assert demo.find("unheard-of") is None
    assert demo.find("<|im_end|>") is None  # special
    with pytest.raises(SettingError, match="'unheard-of' is no single ordinary token"):
        demo.tokens(["seven", "unheard-of"])
    assert demo.tokens([]).tolist() == []


def test_search_finds_the_shortest_first(demo: EmbeddedVocabulary):
    texts = [demo.text(token) for token in demo.search("SEVEN")]
    assert texts[0] == " seven"
    assert texts == sorted(texts, key=len)
    assert all("seven" in text for text in texts)
    assert demo.search("\x00\x00") == []
