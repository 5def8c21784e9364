from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.random_model import train_tokenizer
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE, Tokenizer

TRAINED = train_tokenizer(["a chunk is the immutable stored unit"] * 3, vocab_size=280)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(text: str) -> None:
    tokenizer = Tokenizer(TRAINED)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_continuation_gets_no_special_token(tmp_path: Path) -> None:
    trained = train_tokenizer(["abc"], vocab_size=280)
    trained.add_special_tokens(["<s>"])
    begin = trained.token_to_id("<s>")
    trained.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    trained.save(str(tmp_path / TOKENIZER_FILE))
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer.encode("ab")[0] == begin
    assert begin not in tokenizer.encode("ab", is_continuation=True)
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"


def test_nothing_ends_a_text_that_the_model_goes_on_from() -> None:
    """*Bug:* a tokenizer that ends each text with a token had every prompt end with it."""
    trained = train_tokenizer(["abc"], vocab_size=280)
    trained.add_special_tokens(["<s>", "</s>"])
    begin, end = trained.token_to_id("<s>"), trained.token_to_id("</s>")
    assert begin is not None
    assert end is not None
    trained.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", begin), ("</s>", end)]
    )
    tokenizer = Tokenizer(trained)
    plain = tokenizer.encode("ab", is_continuation=True)
    assert tokenizer.encode("ab") == [begin, *plain]
    assert tokenizer.encode("") == [begin]
    assert tokenizer.encode("<s>ab</s>", is_continuation=True) == [begin, *plain, end]
    assert tokenizer.decode([begin, *plain, end]) == "ab"


@pytest.mark.parametrize(("text", "message"), [(None, "holds no"), ("{", "cannot read")])
def test_refuses_a_broken_file(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / TOKENIZER_FILE).write_text(text)
    with pytest.raises(ModelError, match=message):
        Tokenizer.from_directory(tmp_path)
