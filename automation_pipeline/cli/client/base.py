"""The client of the commands: this machine's database, or another machine's HTTP API (`--api`)."""

from automation_pipeline import bootstrap
from automation_pipeline.cli.client.local import LocalClient
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.cli.client.target import api_token, api_url
from automation_pipeline.core.clock import SystemClock


def open_client() -> Client:
    url = api_url()
    if url is None:
        return LocalClient(bootstrap.services())
    from automation_pipeline.cli.client.remote import RemoteClient  # noqa: PLC0415  only where it is used

    return RemoteClient(bootstrap.remote_api(url, api_token()), SystemClock())
