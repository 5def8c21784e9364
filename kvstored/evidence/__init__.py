"""Where a measurement comes from: code, machine and command, as every result file names them.

The values are in ``provenance``; ``gather`` asks the machine and the environment for them, and git
by ``checkout``.
"""

from kvstored.evidence.gather import gather_provenance, started_as
from kvstored.evidence.provenance import NO_CHECKOUT, Provenance

__all__ = ["NO_CHECKOUT", "Provenance", "gather_provenance", "started_as"]
