"""How a stage is cut into Dagster steps: few and large in one process, enough to share between several."""

from math import ceil

LARGEST_IN_PROCESS = 1_000
SMALLEST_SHARED = 50
LARGEST_SHARED = 500
MOST_BATCHES = 40
# However many fiches there are: a step that is lost with its host, or comes to a second one, must stay small.
LARGEST_OF_SEVERAL = 1_000
BATCHES_A_PROCESS = 4


def batch_size(fiches: int, processes: int) -> int:
    """Fiches a batch. Each boundary drains the concurrency and writes events, so it must be worth it."""
    at_least = ceil(fiches / MOST_BATCHES)
    if processes == 1:
        return max(at_least, LARGEST_IN_PROCESS)
    share = ceil(fiches / (processes * BATCHES_A_PROCESS))
    wanted = max(at_least, min(max(share, SMALLEST_SHARED), LARGEST_SHARED))
    return min(wanted, LARGEST_OF_SEVERAL)
