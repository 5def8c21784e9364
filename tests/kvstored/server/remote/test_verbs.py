"""Which verbs are served over TCP."""

from kvstored.server.remote.verbs import SERVED, sentence_of


def test_nothing_that_moves_bytes_or_belongs_to_operators_is_served() -> None:
    refused = {
        "StoreService/Put",
        "StoreService/Read",
        "StoreService/Append",
        "OperatorService/Drain",
    }
    assert {f"kvstored.v1.{name}" for name in refused}.isdisjoint(SERVED)
    assert "kvstored.v1.StoreService/Match" in SERVED


def test_a_refusal_names_the_verb_and_the_way_there_is() -> None:
    sentence = sentence_of("kvstored.v1.StoreService/Put")
    assert sentence.startswith("Put is not served over TCP")
    assert "server.socket" in sentence
