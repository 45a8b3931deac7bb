"""Helpers for tests of `automation pricing`, with a worker that the test calls."""

from dataclasses import dataclass

from automation_pipeline_tests.cli.terminal import CommandResult, Terminal
from automation_pipeline_tests.fakes.shop import FakeShop, variant
from automation_pipeline_tests.pricing.harness import PricingHarness

TENTH_OFF: dict[str, object] = {
    "name": "Summer [sale]",
    "selector": {"all": True},
    "transform": {"op": "percent", "value": -10},
    "currency": "EUR",
}


def make_shop() -> FakeShop:
    """Create a shop with a product of three variants, one of one variant, and an inactive one."""
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
    harness: PricingHarness

    def run(self, *arguments: str, **given: object) -> CommandResult:
        return self.terminal.run("pricing", *arguments, **given)  # type: ignore[arg-type]

    def json(self, *arguments: str, given: object = None, code: int = 0):  # noqa: ANN201  JSON
        return self.terminal.json("pricing", *arguments, given=given, code=code)

    def text(self, *arguments: str, code: int = 0, **given: object) -> str:
        """Return the output with single spaces."""
        ended = self.run(*arguments, **given)
        assert (ended.code, ended.err) == (code, "")
        return " ".join(ended.out.split())

    def refused(self, *arguments: str, code: int = 1, **given: object) -> str:
        ended = self.run(*arguments, **given)
        assert (ended.code, ended.out) == (code, "")
        assert ended.err.count("\n") == 1
        return ended.err.strip()

    def rule(self, *options: str, **fields: object) -> str:
        """Create a rule, by default 10 % off all products, and return its ID."""
        return self.json("rules", "create", "--file", "-", *options, given=TENTH_OFF | fields)["id"]

    def previewed(self, **fields: object) -> str:
        """Return the ID of a previewed run."""
        return self.json("preview", self.rule(**fields))["run_id"]

    def applied(self, **fields: object) -> str:
        """Return the ID of an applied run."""
        run_id = self.previewed(**fields)
        self.json("runs", "apply", run_id)
        self.work(run_id)
        return run_id

    def work(self, run_id: str) -> None:
        self.harness.work_id(int(run_id))

    def target(self, run_id: str, variant_id: str) -> str:
        found = {
            one["variantId"]: one["id"] for one in self.json("runs", "targets", run_id)["targets"]
        }
        return found[variant_id]
