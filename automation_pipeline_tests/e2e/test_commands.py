"""Commands that wait for their work until the daemon has done it. All of them run concurrently."""

import json

from automation_pipeline.simulator import Fiche, Kind
from automation_pipeline_tests.e2e.conftest import NewSystem
from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS, Installation


def test_commands_wait_for_the_end_and_exit_with_its_status(
    installation: Installation, fiches: tuple[Fiche, ...]
) -> None:
    one, two, three, *_ = [fiche.id for fiche in fiches if fiche.kind is Kind.ORDINARY]
    schedule_id = installation.create_schedule([three])
    commands = {
        ("transcribe", one, "--priority", "high"): 0,
        ("transcribe", "999999999"): 1,
        ("audit", two, "--config", "1"): 0,
        ("enrich", "552032534"): 0,
        ("schedules", "run-now", schedule_id): 0,
    }
    started = {
        words: installation.start(
            "automation", *words, "--wait", "--json", log=f"{words[0]}-{number}.log"
        )
        for number, words in enumerate(commands)
    }
    codes = {words: process.wait(TIMEOUT_SECONDS) for words, process in started.items()}
    logs = {
        words: (installation.folder / f"{words[0]}-{n}.log").read_text()
        for n, words in enumerate(commands)
    }
    assert codes == commands, logs
    for words, log in logs.items():
        assert "Traceback" not in log
        if commands[words] == 0:
            assert json.loads("{" + f"\n{log}".partition("\n{")[2]), (
                "what the command logs comes before"
            )
    shown = installation.run("automation", "fiches", "show", one).stdout
    assert (
        f"{len(next(fiche for fiche in fiches if fiche.id == one).recordings)} transcribed" in shown
    )


def test_without_a_daemon_the_command_says_so_or_executes_the_work_itself(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    one, two, *_ = [fiche for fiche in fiches if fiche.kind is Kind.ORDINARY]
    system = new_system()
    waited = system.run("automation", "transcribe", one.id, "--wait", "--json")
    assert (waited.returncode, waited.stdout) == (1, "")
    assert json.loads(waited.stderr)["error"]["code"] == "NO_DAEMON"
    ended = system.run("automation", "transcribe", two.id, "--here", "--json")
    assert ended.returncode == 0, ended.stderr
    [transcription] = json.loads(ended.stdout)["transcriptions"]
    assert (transcription["status"], transcription["transcribed"]) == (
        "completed",
        len(two.recordings),
    )
    refused = system.run("automation", "transcribe", one.id, "--here", ELEVENLABS_API_KEY="")
    assert refused.returncode == 1
    assert refused.stderr.strip().endswith(
        "ElevenLabs API key not configured (set ELEVENLABS_API_KEY)."
    )
