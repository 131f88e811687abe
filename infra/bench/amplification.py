"""Write and space amplification of a masked topic partition: the reference of docs/simulation.md."""

from typing import Final

from pipeline.simulate import Simulated, Workload, contenders, simulate

REFERENCE: Final = "docs/simulation.md, reference, masked after 5 minutes"
WORKLOAD: Final = Workload(rate=4, hours=1_000_000 / 4 / 3600, keys=50_000)
POLICY: Final = {
    "mask.max.lag.ms": "300000",
    "full.interval.ms": "-1",
    "merge.segments": "256",
}
"""What docs/simulation.md proposes where readers see one record per key by lane ``mask``."""


def masked() -> Simulated:
    """The reference under the proposed policy."""
    return simulate(WORKLOAD, contenders(POLICY, ("firn",))[:1])[0]
