"""Runs the simulator, and sets the environment variables that make commands use it."""

import os
import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager

TOKEN = "sim-token"
SPEECH_KEY = "sim-speech-key"
LLM_KEY = "sim-llm-key"
SHOP_TOKEN = "sim-shop-token"
INPI_USERNAME, INPI_PASSWORD = "sim-inpi@exemple.test", "sim-inpi-password"
ENTREPRISE_TOKEN = "sim-entreprise-token"
PUBLIC_BODY = "13002526500013"  # the SIRET that calls of API Entreprise name as their recipient


@contextmanager
def simulator(*options: str) -> Generator[str]:
    """The address of a running simulator."""
    command = ["automation", "simulator", "--token", TOKEN, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            output = process.stdout.readline() if process.stdout else ""
            found = re.search(r"http://\S+", output)
            if found is None:
                raise SystemExit("The simulator did not start.")
            yield found[0]
        finally:
            process.terminate()


def environment(address: str, **more: str) -> Mapping[str, str]:
    """The environment variables of a command that uses the simulator for all external systems."""
    return {
        # Without these variables, which would make `automation` use the API of another machine.
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith("AUTOMATION_API_")
        },
        "FICHE_API_BASE_URL": address,
        "FICHE_API_AUTH_TOKEN": TOKEN,
        "ELEVENLABS_BASE_URL": address,
        "TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS": address,
        "ELEVENLABS_API_KEY": SPEECH_KEY,
        "LLM_BASE_URL": f"{address}/v1",
        "LLM_API_KEY": LLM_KEY,
        "SHOP_API_BASE_URL": address,
        "SHOP_API_TOKEN": SHOP_TOKEN,
        "RECHERCHE_ENTREPRISES_BASE_URL": f"{address}/registries/search",
        "INPI_RNE_BASE_URL": f"{address}/registries/inpi",
        "INPI_RNE_USERNAME": INPI_USERNAME,
        "INPI_RNE_PASSWORD": INPI_PASSWORD,
        "API_ENTREPRISE_BASE_URL": f"{address}/registries/entreprise",
        "API_ENTREPRISE_TOKEN": ENTREPRISE_TOKEN,
        "API_ENTREPRISE_RECIPIENT": PUBLIC_BODY,
        # The simulator has no rate limits.
        "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "6000",
        "LLM_RATE_LIMIT_PER_MINUTE": "60000",
        **more,
    }
