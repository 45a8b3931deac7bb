"""What can be set about the registries while they run. A limit of 0 is none."""

from collections.abc import Callable, Mapping

from automation_pipeline.simulator.fault_rules import BadRequestError
from automation_pipeline.simulator.registries.limits import Window
from automation_pipeline.simulator.registries.state import RegistriesState

MOST_CALLS, MOST_SECONDS = 1_000_000, 86_400.0
LIMITS: Mapping[str, Callable[[RegistriesState], Window]] = {
    "search_per_second": lambda state: state.search,
    "inpi_per_minute": lambda state: state.inpi,
    "inpi_per_day": lambda state: state.inpi_quota,
    "inpi_logins_per_30_seconds": lambda state: state.inpi_logins,
    "entreprise_per_minute": lambda state: state.entreprise,
}
SECONDS = ("inpi_ban_seconds", "inpi_token_seconds")
YOUNG = "young_at_inpi"
NAMES = (*LIMITS, *SECONDS, YOUNG)


def shown(state: RegistriesState) -> dict[str, object]:
    return {
        **{name: window(state).limit for name, window in LIMITS.items()},
        "inpi_ban_seconds": state.inpi_bans.seconds,
        "inpi_token_seconds": state.account.token_seconds,
        YOUNG: state.young_at_inpi,
    }


def changed(state: RegistriesState, given: Mapping[str, object]) -> None:
    if not given or set(given) - set(NAMES):
        raise BadRequestError(f"The body must be an object with some of {', '.join(NAMES)}.")
    limits = {name: _limit(name, given[name]) for name in LIMITS if name in given}
    seconds = {name: _seconds(name, given[name]) for name in SECONDS if name in given}
    young = given.get(YOUNG, state.young_at_inpi)
    if not isinstance(young, bool):
        raise BadRequestError(f"{YOUNG!r} must be true or false.")
    for name, limit in limits.items():
        LIMITS[name](state).limit = limit
    state.inpi_bans.seconds = seconds.get("inpi_ban_seconds", state.inpi_bans.seconds)
    state.account.token_seconds = seconds.get("inpi_token_seconds", state.account.token_seconds)
    state.young_at_inpi = young


def _limit(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_CALLS:
        raise BadRequestError(f"{name!r} must be a whole number from 0, for none, to {MOST_CALLS}.")
    return value


def _seconds(name: str, value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MOST_SECONDS
    ):
        raise BadRequestError(f"{name!r} must be a number of seconds from 0 to {MOST_SECONDS:.0f}.")
    return float(value)
