"""What the simulation of tiers may know of the daemon: its policies, and nothing else."""

from tests.tidy.purity import settings
from tests.tidy.sources import modules

CONTRACT = "The simulation of tiers knows the policies only"
ALLOWED = {"kvstored.tiers.policy", "kvstored.evidence"}
"""The latter says what a result was measured on."""


def test_modules_of_the_daemon_that_no_contract_kept_from_the_simulation() -> None:
    """Bug: modules that came after the contract were free to be used by it."""
    (contract,) = (
        each for each in settings()["importlinter"]["contracts"] if each["name"] == CONTRACT
    )
    inside = {
        name
        for name in modules()
        if name.rpartition(".")[0] in {"kvstored", "kvstored.tiers"}
        and not name.endswith("__main__")
    }
    forbidden = set(contract["forbidden_modules"])
    assert inside - forbidden - {"kvstored.tiers"} == ALLOWED
