"""The external systems in one process on loopback, for demo, tests and benchmarks. `serve` runs it,
`World` is its truth.

Providers (`crm/`, `audio.py`, `speech/`, `llm/`, `pusher/`, `shop/`, `registries/`) contribute
endpoints; `gate.py` puts ledger and faults before each; `control.py` is the surface under /_sim.
"""

from automation_pipeline.simulator.server import SimulatorStartError, serve
from automation_pipeline.simulator.speech.conversation import conversation, phases_of_fiche
from automation_pipeline.simulator.speech.transcript import CallKind, Phase, Transcript
from automation_pipeline.simulator.world.world import Fiche, Kind, Recording, World

__all__ = [
    "CallKind",
    "Fiche",
    "Kind",
    "Phase",
    "Recording",
    "SimulatorStartError",
    "Transcript",
    "World",
    "conversation",
    "phases_of_fiche",
    "serve",
]
