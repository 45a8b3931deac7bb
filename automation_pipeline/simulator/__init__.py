"""The external systems in one process on loopback, for the demo, tests and benchmarks. `serve` runs it, and `World`
defines its data.

Providers (`crm/`, `audio.py`, `speech/`, `llm/`, `pusher/`, `shop/`, `registries/`) contribute
endpoints. `gate.py` counts the calls of each endpoint and applies faults. `control.py` serves the
control endpoints under /_sim.
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
