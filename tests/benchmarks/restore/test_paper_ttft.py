from benchmarks.restore.paper_ttft import ttft_experiments
from engine_adapters.restore import Mode

EXPERIMENTS = {experiment.key: experiment for experiment in ttft_experiments()}


def test_each_setting_is_held_against_what_the_text_says_of_it() -> None:
    conversation = {
        setting.name: [str(claim) for claim in setting.claims]
        for setting in EXPERIMENTS["ttft_conversation"].settings
    }
    assert conversation == {
        "Llama2-7B 2.5K + 67": ["1.27 - 1.6", "2.21 - 3.57"],
        "Llama2-13B 2.5K + 67": ["1.27 - 1.6", "2.21 - 3.57"],
        "OPT-30B 2.5K + 67": ["1.27 - 1.9", "2.21 - 3.57"],
    }
    long = EXPERIMENTS["ttft_long"].settings
    assert len(long) == 12
    assert {tuple(map(str, setting.claims)) for setting in long} == {("1.62 - 1.93", "2.66 - 5.73")}


def test_hits_bring_all_modes_nearer_to_each_other() -> None:
    """Section 6.4: a high hit ratio diminishes the gains."""
    uniform, skewed = EXPERIMENTS["ttft_reuse"].settings
    (over_kv,) = uniform.claims
    assert 1 < skewed.speedup(over_kv) < uniform.speedup(over_kv)
    assert abs(over_kv.difference(uniform.speedup(over_kv))) < 0.05
    for setting in (uniform, skewed):
        assert setting.ttft_s(Mode.HCACHE) < setting.ttft_s(Mode.KV)


def test_every_missed_range_is_explained() -> None:
    missed = [
        setting
        for experiment in EXPERIMENTS.values()
        for setting in experiment.settings
        for claim in setting.claims
        if claim.difference(setting.speedup(claim))
    ]
    assert missed
    assert all(setting.why for setting in missed)
