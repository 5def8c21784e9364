import pytest

from benchmarks.restore.claim import Claim, over
from benchmarks.restore.experiment import Experiment, judged
from engine_adapters.restore import Mode


class Fixed:
    name = "a setting"
    why = ""
    claims = (over(Mode.KV, 2.0, 4.0, section="6"), over(Mode.KV, 3.0, section="6"))

    def speedup(self, claim: Claim) -> float:
        assert claim in self.claims
        return 5.0


def test_ranges_are_judged_and_single_figures_are_not() -> None:
    experiment = Experiment(key="one", title="One", note="", settings=(Fixed(),))
    (found,) = judged([experiment, Experiment(key="two", title="", note="", settings=())])
    assert (found.setting_name, found.key) == ("a setting", "one_hcache_vs_kv")
    assert found.difference == pytest.approx(0.25)
