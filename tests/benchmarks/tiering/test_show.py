from benchmarks.tiering import paper
from benchmarks.tiering.grid import Cell
from benchmarks.tiering.policies import PolicyName
from benchmarks.tiering.replay import Hits, Setting
from benchmarks.tiering.show import published_hit


def cell(figure: str, policy: PolicyName, label: str = "128G/10T") -> Cell:
    setting = Setting(
        policy=policy,
        disk_bytes=10,
        dram_bytes=1,
        model=paper.LLAMA_13B,
        disk_bytes_per_s=1.0,
    )
    return Cell(
        figure=figure,
        model=paper.LLAMA_13B,
        setting=setting,
        label=label,
        hits=Hits(),
        queue_mean=0.0,
    )


def test_the_papers_own_policy_has_its_numbers() -> None:
    model = paper.LLAMA_13B
    ours = {
        figure: published_hit(cell(figure, PolicyName.OURS))
        for figure in ("13", "22", "23, 0.1 of 17.9 TB", "24, HBM", "24, HBM+DRAM", "load 0.5")
    }
    assert ours == {
        "13": model.hit,
        "22": model.hit - model.overflow_loss,
        "23, 0.1 of 17.9 TB": paper.FIGURE_23[0.1],
        "24, HBM": 0.0,
        "24, HBM+DRAM": model.dram_hit,
        "load 0.5": None,
    }


def test_other_policies_have_numbers_in_figure_21_alone() -> None:
    figures = ("13", "22", "23, 0.1 of 17.9 TB", "24, HBM", "load 0.5")
    assert {published_hit(cell(figure, PolicyName.LRU)) for figure in figures} == {None}
    assert published_hit(cell("21", PolicyName.LRU)) == paper.FIGURE_21[10 * paper.TB]["lru"]
    for label, terabytes in (("128G/2T", 2), ("128G/1.87T", 2), ("128G/9.87T", 10)):
        published = published_hit(cell("21, as the daemon", PolicyName.OURS, label))
        assert published == paper.FIGURE_21[terabytes * paper.TB]["look-ahead"]
    assert published_hit(cell("21, room for tokens alone", PolicyName.LRU)) is None
