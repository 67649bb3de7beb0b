"""Flows from Python: built from typed calls, started once for each key, waited for, retried and cancelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.errors import BadInput, FlowFailed, KeyConflict, SettingsError
from holdfast.core.transitions import FlowStatus
from holdfast.engine.client.flows import state_of
from holdfast.testing import crash_everywhere
from tests.engine.stage import Stage


class Workshop:
    """Tasks of a small release; the check fails until the world is repaired."""

    def __init__(self) -> None:
        self.is_repaired = True
        self.built = 0

        @hf.task(attempts=1)
        async def build(run: hf.Run, target: str) -> dict[str, str]:
            path = await run.step(self.compile, target)
            return {"path": path}

        @hf.task(attempts=1)
        async def check(run: hf.Run, path: str, strict: bool = True) -> int:
            if not self.is_repaired:
                raise ValueError("a bug")
            return len(path) + strict

        @hf.task
        async def publish(run: hf.Run, path: str, numbers: list[int]) -> str:
            return await run.step(self.upload, path, sum(numbers))

        self.build, self.check, self.publish = build, check, publish
        self.tasks: list[hf.TaskDefinition[..., Any]] = [build, check, publish]

    async def compile(self, target: str) -> str:
        self.built += 1
        return f"dist/{target}"

    async def upload(self, path: str, total: int) -> str:
        return f"{path} at {total}"

    def release(self) -> tuple[hf.FlowBuilder, hf.PlannedNode[str]]:
        flow = hf.flow("release", goal="ship it")
        built = flow.node("build", self.build("app"))
        short = flow.node("short", self.check(built.result["path"], strict=False))
        whole = flow.node("whole", self.check(path=built.result["path"]))
        numbers = [short.result, whole.result, 1]
        return flow, flow.node("publish", self.publish(built.result["path"], numbers))


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


async def test_a_flow_built_from_calls_runs_and_gives_typed_results(stage: Stage, shop: Workshop) -> None:
    await stage.open(*shop.tasks)
    flow, published = shop.release()

    handle = await stage.holdfast.start_flow(flow, key="r1")
    await stage.settle()

    assert await handle.result(published) == "dist/app at 18"
    assert (await handle.results())["build"] == {"path": "dist/app"}
    assert [node.status.value for node in await handle.nodes()] == ["succeeded"] * 4
    again = await stage.holdfast.start_flow(shop.release()[0], key="r1")
    assert again.id == handle.id
    with pytest.raises(KeyConflict):
        await stage.holdfast.start_flow(_other(shop), key="r1")


def _other(shop: Workshop) -> hf.FlowBuilder:
    flow = hf.flow("release", goal="ship it")
    flow.node("build", shop.build("other"))
    return flow


async def test_a_blocked_flow_tells_its_waiter_and_goes_on_when_it_is_retried(
    stage: Stage, shop: Workshop
) -> None:
    shop.is_repaired = False
    await stage.open(*shop.tasks)
    flow, published = shop.release()
    handle = await stage.holdfast.start_flow(flow)
    await stage.settle()

    with pytest.raises(FlowFailed, match="then retry the flow") as failed:
        await handle.results()
    assert failed.value.status == "blocked"
    shop.is_repaired = True
    await handle.retry("whole")
    await handle.retry()
    await stage.settle()

    assert await handle.result(published) == "dist/app at 18"
    assert shop.built == 1
    with pytest.raises(TimeoutError, match="has not ended"):
        await (await stage.holdfast.start_flow(_other(shop))).wait(timeout="10ms")


async def test_a_flow_is_cancelled_by_its_handle_before_its_nodes_run(quick: Stage, shop: Workshop) -> None:
    await quick.open(*shop.tasks)
    handle = await quick.holdfast.start_flow(shop.release()[0])

    await handle.cancel("a freeze")

    assert await quick.holdfast.flow_handle(handle.id).status() is FlowStatus.CANCELLED
    with pytest.raises(FlowFailed, match="is cancelled"):
        await handle.results()


async def test_a_flow_killed_at_every_point_ends_as_without_a_crash(shop: Workshop) -> None:
    report = await crash_everywhere(shop.release()[0], tasks=shop.tasks, twice=True)

    assert report.status is FlowStatus.SUCCEEDED
    assert report.result["publish"] == ("succeeded", "dist/app at 18")
    assert len(report.points) > 10


async def test_a_flow_with_a_failing_node_killed_at_every_point_is_blocked_each_time(shop: Workshop) -> None:
    shop.is_repaired = False

    report = await crash_everywhere(shop.release()[0], tasks=shop.tasks)

    assert report.status is FlowStatus.BLOCKED
    assert {node: end[0] for node, end in report.result.items()} == {
        "build": "succeeded",
        "short": "failed",
        "whole": "failed",
        "publish": "pending",
    }


async def test_a_result_has_no_value_before_the_flow_runs(shop: Workshop) -> None:
    flow = hf.flow("release")
    built = flow.node("build", shop.build("app"))

    with pytest.raises(BadInput, match="no value before the flow runs"):
        list(built.result)
    with pytest.raises(BadInput, match="no value before the flow runs"):
        assert built.result
    with pytest.raises(BadInput, match="a call of a task is needed"):
        flow.node("x", "build")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a list of nodes is needed"):
        flow.node("x", shop.build("app"), after="build")
    with pytest.raises(BadInput, match="argument target"):
        shop.build(object())  # type: ignore[arg-type]


async def test_a_controller_owns_its_flows(quick: Stage) -> None:
    await quick.open()
    flows = quick.holdfast.flows(owner="ada")
    trip = await flows.create(hf.NewFlow(name="trip", controller="planner", state={"city": "Oslo"}))

    waiting = await flows.wait(trip.id, {"for": "a visa"}, revision=1, current_step="visa")
    done = await flows.resume(trip.id, revision=waiting.revision)
    ended = await flows.finish(trip.id, revision=done.revision, state={"city": "Bergen"})

    assert (trip.owner, ended.status, state_of(ended)) == ("ada", FlowStatus.SUCCEEDED, {"city": "Bergen"})
    assert [flow.id for flow in await flows.page()] == [trip.id]
    with pytest.raises(hf.NotYours):
        await quick.holdfast.flows(owner="bob").get(trip.id)


# --- from the settings

YAML = """
release:
  goal: Ship it.
  nodes:
    build:
      task: shop_tasks:build
      args: {target: app}
    check:
      task: count
      args: {path: {from: build, path: [path]}, raw: {literal: {from: London}}}
      priority: 2
"""
MODULE = """
import holdfast as hf

@hf.task(name="build-it")
async def build(run: hf.Run, target: str) -> str:
    return target
"""


def in_home(home: Path, yaml: str) -> dict[str, Any]:
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "workflows.yaml").write_text(yaml)
    (home / "config").chmod(0o700)
    return hf.read_flows(home)


def test_flows_are_read_from_the_settings_with_the_names_of_their_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_tasks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))

    release = in_home(tmp_path, YAML)["release"]

    build, check = release.nodes
    assert (build.task, check.task, check.needs, check.priority) == ("build-it", "count", ("build",), 2)
    assert check.arguments == {"path": None, "raw": {"from": "London"}}
    with pytest.raises(SettingsError, match=r"args.goal: shop_tasks:build has no such parameter"):
        in_home(tmp_path, YAML.replace("target: app", "goal: app"))
    with pytest.raises(SettingsError, match=r"nodes.build.args: shop_tasks:build needs target"):
        in_home(tmp_path, YAML.replace("target: app", ""))


@pytest.mark.parametrize(
    ("yaml", "why"),
    [
        ("release: {nodes: {}}", "has no nodes"),
        ("release: {nodes: {a: {task: t, needs: [b]}}}", "which is no node"),
        ("release: {nodes: {a: {task: t, needs: [a]}}}", "it needs itself"),
        ("release: {nodes: {a: {task: t, needs: [b]}, b: {task: t, needs: [a]}}}", "in a circle"),
        ("release: {nodes: {a: {task: t, args: {x: {from: b}}}}}", "which is no node"),
        ("release: {nodes: {a: {task: t}, b: {task: t, args: {x: {from: 5}}}}}", "args.x of node b: `from`"),
        ("release: {nodes: {a: {task: t}, b: {task: t, args: {x: [{from: null, path: y}]}}}}", "args.x.0 of"),
        ("release: {nodes: {a: {task: t}, b: {task: t, args: {x: {from: a, path: [null]}}}}}", "path is a"),
        ("release: {nodes: {a: {task: t}, b: {task: t, args: {x: {from: a, path: [1.5]}}}}}", "path is a"),
        ("release: {nodes: {a: {task: t}, b: {task: t, args: {x: {from: a, path: [true]}}}}}", "path is a"),
        ("release: {nodes: {a: {task: t}, b: {task: t, args: {x: {from: a, path: {x: 1}}}}}}", "path is a"),
        ("release: {nodes: {a: {task: cron.command}}}", "only schedules make tasks of cron.command"),
        ("release: {nodes: {a: {task: agent.main}}}", "task of node a: a task of an agent belongs to"),
        ("release: {nodes: {a: {task: t}, a: {task: t}}}", "given twice"),
        ("release: {nodes: {a: {needs: []}}}", r"workflows.release.nodes .* task must be set"),
        ("release: {nodes: {a: {task: t, speed: 3}}}", "it has no key speed: remove that key"),
        ("release: {nodes: {a: {task: t, priority: 99}}}", "workflows.release.nodes"),
        ("release: {steps: {}}", "is not a setting"),
        ("re lease: {nodes: {a: {task: t}}}", "letters, digits"),
    ],
)
def test_a_flow_in_the_settings_that_cannot_work_is_refused_with_its_key(
    tmp_path: Path, yaml: str, why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        in_home(tmp_path, yaml)
