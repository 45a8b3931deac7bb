"""The client of the commands: this machine's database, or another machine's HTTP API (`--api`)."""

from automation_pipeline import bootstrap
from automation_pipeline.cli.client.local import LocalClient
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.cli.operations import remote_api
from automation_pipeline.core.clock import SystemClock


def open_client() -> Client:
    api = remote_api()
    if api is None:
        return LocalClient(bootstrap.services())
    from automation_pipeline.cli.client.http import OldApi  # noqa: PLC0415  only where it is used
    from automation_pipeline.cli.client.remote import RemoteClient  # noqa: PLC0415  only where it is used

    return RemoteClient(OldApi(api), SystemClock())
