"""Whether a code server has loaded the definitions: `python -m
automation_pipeline.orchestration.code_server 4000`.

Dagster's own `grpc-health-check` is content with a server that could not load them."""

import sys

from dagster._api.list_repositories import sync_list_repositories_grpc
from dagster._core.errors import DagsterUserCodeProcessError, DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient


def complaint_about(port: int) -> str | None:
    """Of the code server on this port of this machine; None where its definitions are loaded."""
    try:
        sync_list_repositories_grpc(DagsterGrpcClient(host="127.0.0.1", port=port))
    except DagsterUserCodeUnreachableError:
        return f"No code server answers on port {port}."
    except DagsterUserCodeProcessError as error:
        reason = error.user_code_process_error_infos[0]
        innermost = reason.cause or reason
        return f"The definitions do not load: {innermost.message.strip()}"
    return None


def main() -> None:
    complaint = complaint_about(int(sys.argv[1]))
    if complaint is not None:
        sys.exit(complaint)


if __name__ == "__main__":
    main()
