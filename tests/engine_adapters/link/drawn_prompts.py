"""Random parts of prompts."""

from hypothesis import strategies as st

from engine_adapters.link.method import LinkMethod
from engine_adapters.link.parts import EntryPart, NewPart, Part
from engine_adapters.link.plan import LinkPlan, plan_link

METHODS = st.sampled_from(["naive", "full", "attnlink-2", "attnlink-4", "attnlink-10"]).map(
    LinkMethod.named
)


@st.composite
def prompts(draw: st.DrawFn) -> list[Part]:
    """Parts of at least one token in all; entries of one id have as many tokens everywhere.

    Some have a sink.
    """
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    entries = [
        EntryPart(f"e{number}", length, draw(st.sampled_from([0, 0, 3, 4, 9])))
        for number, length in enumerate(lengths)
    ]
    new = st.integers(0, 6).map(NewPart)
    parts: list[Part] = draw(st.lists(st.one_of(st.sampled_from(entries), new), max_size=8))
    if not any(part.token_count for part in parts):
        parts.append(NewPart(draw(st.integers(1, 4))))
    return parts


plans: st.SearchStrategy[LinkPlan] = st.builds(plan_link, prompts(), METHODS)
