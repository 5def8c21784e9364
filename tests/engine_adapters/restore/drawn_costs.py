"""Costs of a layer as hypothesis draws them."""

from hypothesis import strategies as st

from engine_adapters.restore import LayerCosts

seconds = st.floats(1e-6, 10.0)
"""Down to a microsecond a layer, so that both channels can be the slower one by far."""
layer_counts = st.integers(1, 40)
load_shares = st.floats(0.0, 0.99)
"""Of projecting, which ends with the same copy and rotation."""


@st.composite
def any_costs(draw: st.DrawFn) -> LayerCosts:
    """Every relation between the four of the paper."""
    project_s = draw(seconds)
    return LayerCosts(
        io_hidden_s=draw(seconds),
        io_kv_s=draw(seconds),
        compute_s=draw(seconds),
        project_s=project_s,
        load_s=draw(load_shares) * project_s,
    )


@st.composite
def mha_costs(draw: st.DrawFn) -> LayerCosts:
    """What section 3.2 of the paper derives: hidden states are half as large as keys and
    values, and computing takes at least 6 times as long as projecting."""
    io_hidden_s, project_s = draw(seconds), draw(seconds)
    return LayerCosts(
        io_hidden_s=io_hidden_s,
        io_kv_s=2 * io_hidden_s,
        compute_s=draw(st.floats(6.0, 12.0)) * project_s,
        project_s=project_s,
        load_s=draw(load_shares) * project_s,
    )
