"""The pricing commands on a terminal, with a worker that the test calls."""

from dataclasses import dataclass

from automation_pipeline_tests.cli.terminal import Ended, Terminal
from automation_pipeline_tests.fakes.shop import FakeShop, variant
from automation_pipeline_tests.pricing.bench import Bench

TENTH_OFF: dict[str, object] = {
    "name": "Summer [sale]",
    "selector": {"all": True},
    "transform": {"op": "percent", "value": -10},
    "currency": "EUR",
}


def a_shop() -> FakeShop:
    """One product of three variants, another of one, and one that is not on sale."""
    return FakeShop(
        variant("11", "1", 1999, sku="MUG-S", title="Mug [small]", compare_at=2499),
        variant("12", "1", 2999, sku="MUG-L", title="Mug [large]"),
        variant("13", "1", 1000, sku="MUG-0", title="Mug"),
        variant("21", "2", 50_000, sku="TABLE", title="Table", cost=49_000),
        variant("31", "3", 100, sku="GONE", title="Gone", is_active=False),
    )


@dataclass(frozen=True)
class PricingCommands:
    terminal: Terminal
    bench: Bench

    def run(self, *words: str, **given: object) -> Ended:
        return self.terminal.run("pricing", *words, **given)  # type: ignore[arg-type]

    def json(self, *words: str, given: object = None, code: int = 0):  # noqa: ANN201  JSON
        return self.terminal.json("pricing", *words, given=given, code=code)

    def text(self, *words: str, code: int = 0, **given: object) -> str:
        """The text on the screen, with single spaces."""
        ended = self.run(*words, **given)
        assert (ended.code, ended.err) == (code, "")
        return " ".join(ended.out.split())

    def refused(self, *words: str, code: int = 1, **given: object) -> str:
        ended = self.run(*words, **given)
        assert (ended.code, ended.out) == (code, "")
        assert ended.err.count("\n") == 1
        return ended.err.strip()

    def rule(self, *options: str, **fields: object) -> str:
        """The id of a new rule: a tenth off everything, unless the fields say otherwise."""
        return self.json("rules", "create", "--file", "-", *options, given=TENTH_OFF | fields)["id"]

    def previewed(self, **fields: object) -> str:
        """The id of a run that waits to be applied."""
        return self.json("preview", self.rule(**fields))["run_id"]

    def applied(self, **fields: object) -> str:
        """The id of a run that a worker has applied."""
        run_id = self.previewed(**fields)
        self.json("runs", "apply", run_id)
        self.work(run_id)
        return run_id

    def work(self, run_id: str) -> None:
        self.bench.work_id(int(run_id))

    def target(self, run_id: str, variant_id: str) -> str:
        found = {
            one["variantId"]: one["id"] for one in self.json("runs", "targets", run_id)["targets"]
        }
        return found[variant_id]
