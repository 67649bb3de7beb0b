"""Makes a pydantic-ai agent durable: inside a run its model requests and tool calls are steps.

It uses pydantic-ai's own interface for durable engines, so the agent itself does not change:

    agent = Agent(model, name="research", tools=[search], capabilities=[HoldfastDurability()])

    @hf.task
    async def research(run: hf.Run, topic: str) -> str:
        async with durable(run):
            return (await agent.run(topic)).output

A request to the model is a plain step: its answer is saved, and reused even if the prompt has changed since.
A tool call is an effect with the class that the function was declared with (`@hf.read`, `@hf.verifiable(…)`);
without one it is opaque. Outside of `durable` the agent runs as usual, and nothing is saved.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec

from holdfast.core.clock import SystemClock
from holdfast.core.effect import EffectClass
from holdfast.core.errors import BadInput, RetryAfter
from holdfast.core.ids import new_token
from holdfast.core.step_declarations import StepOptions, options_of, step, tool
from holdfast.engine.program.author_api import Run

try:
    from pydantic_ai import exceptions
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        BoundDurableOperation,
        DurabilityEngineSpec,
        DurableOperation,
        DurableOperationBackend,
        DynamicToolsetCallToolParams,
        EventStreamHandlerId,
        JournalOperationNamer,
        ToolsetCallToolId,
        ToolsetCallToolParams,
        conversation_id_from_run_id,
        durable_unit_scope,
    )
    from pydantic_ai.models import Model
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset
except ImportError as error:
    if error.name is not None and error.name.split(".")[0] not in ("pydantic_ai", "pydantic"):
        raise
    raise ImportError(
        "holdfast.integrations.pydantic_ai needs pydantic-ai; pip install '.[pydantic-ai]' in a checkout"
    ) from error

ParamsT = TypeVar("ParamsT")
WireT = TypeVar("WireT")
ResultT = TypeVar("ResultT")

# A replayed step raises these by their own class, because agents and their capabilities catch them by class.
_ERRORS = tuple(
    kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)
)
# Marks a tool call without a plain result: the model must try again, a person must approve, …
_OTHERWISE = "$pydantic-ai"


class AgentStart(msgspec.Struct, frozen=True):
    """The start of `durable` in a run; saved, so that ids and deadlines survive a restart."""

    id: str
    began_at: datetime


class AgentInRun:
    """The run that an agent is part of; it gives each call of the agent its id."""

    def __init__(self, run: Run, origin: AgentStart) -> None:
        self.run = run
        self.origin = origin
        self._runs: dict[str | None, int] = {}
        self._seen: Counter[tuple[str, str]] = Counter()

    def begin_run(self) -> str:
        """A new id for a run of an agent: the same in every replay."""
        return self._numbered("run", f"{self.run.task_id}:{self.origin.id}")

    def call_id(self, name: str, params: object) -> str:
        """The id of a call, unique among calls of that name: from the agent's run, the id that the model gave
        the call, and a count. (Models number their calls anew in each run.)"""
        context = getattr(params, "run_context", None) or getattr(params, "ctx", None)
        place = self._runs.setdefault(getattr(context, "run_id", None), len(self._runs) + 1)
        given = getattr(context, "tool_call_id", None)
        return self._numbered(name, f"{self.origin.id}.{place}{f':{given}' if given else ''}")

    def _numbered(self, name: str, told: str) -> str:
        """Append a count from the second time on."""
        self._seen[name, told] += 1
        count = self._seen[name, told]
        return told if count == 1 else f"{told}#{count}"


_agent_in_run: ContextVar[AgentInRun | None] = ContextVar("holdfast_pydantic_ai", default=None)


@contextlib.contextmanager
def _working_as(carried: AgentInRun | None) -> Iterator[None]:
    token = _agent_in_run.set(carried)
    try:
        yield
    finally:
        _agent_in_run.reset(token)


@contextlib.asynccontextmanager
async def durable(run: Run) -> AsyncIterator[None]:
    """Inside the block, agents with HoldfastDurability are part of the run, or of its open turn."""
    origin = await run.step(step(_begin, name="pydantic-ai"))
    with _working_as(AgentInRun(run, origin)):
        yield


async def _begin() -> AgentStart:
    return AgentStart(id=new_token()[:8], began_at=SystemClock().now())


class HoldfastDurability(BaseDurabilityCapability[AgentDepsT]):
    """A capability for `Agent(…, capabilities=[HoldfastDurability()])`; the agent needs a name.

    If a provider limits the rate and says when to try again, the run waits for that long, durably; with
    `waits_when_limited=False` the error is raised instead, for an agent that has a fallback model.
    An event handler gets events as they happen, and may get them again after a restart.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        waits_when_limited: bool = True,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._waits_when_limited = waits_when_limited

    @property
    def in_durable_context(self) -> bool:
        return _agent_in_run.get() is not None

    def get_durable_operation_backend(self) -> AgentSteps:
        return AgentSteps(self.name, self.default_model_id, waits_when_limited=self._waits_when_limited)

    def get_default_run_id(self) -> str | None:
        carried = _agent_in_run.get()
        return None if carried is None else carried.begin_run()

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:  # noqa: ARG002 - as it is called
        carried = _agent_in_run.get()
        return None if carried is None else carried.origin.began_at


class AgentSteps(DurableOperationBackend[Mapping[str, Any]]):
    """Runs the operations of pydantic-ai as steps."""

    def __init__(self, agent: str, model_id: str | None, *, waits_when_limited: bool) -> None:
        self._namer = JournalOperationNamer(agent, default_model_id=model_id or "default")
        self._waits_when_limited = waits_when_limited

    def bind(
        self, operation: DurableOperation[ParamsT, WireT, ResultT]
    ) -> BoundDurableOperation[ParamsT, WireT, ResultT]:
        name = self._namer.operation_name(operation.operation_id)
        return BoundOperation(operation, name, waits_when_limited=self._waits_when_limited)

    def config_for_tool(
        self,
        operation: DurableOperation[ParamsT, WireT, ResultT],  # noqa: ARG002 - as it is called
        *,
        tool: object | None,  # noqa: ARG002
        tool_name: str,  # noqa: ARG002
    ) -> Mapping[str, Any] | Literal[False]:
        # The options of a tool come from its declaration.
        return {}

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()


class BoundOperation(BoundDurableOperation[ParamsT, WireT, ResultT], Generic[ParamsT, WireT, ResultT]):
    """One kind of operation; each call is a step."""

    def __init__(
        self, operation: DurableOperation[ParamsT, WireT, ResultT], name: str, *, waits_when_limited: bool
    ) -> None:
        self._operation = operation
        self._name = name
        self._waits_when_limited = waits_when_limited

    @property
    def operation(self) -> DurableOperation[ParamsT, WireT, ResultT]:
        return self._operation

    async def __call__(self, params: ParamsT, *, config: object | None = None) -> ResultT:  # noqa: ARG002
        carried = _agent_in_run.get()
        if carried is None or isinstance(self._operation.operation_id, EventStreamHandlerId):
            return self._operation.result_codec.load(await self._do(params))
        is_call = isinstance(self._operation.operation_id, ToolsetCallToolId)
        if is_call and isinstance(params, (ToolsetCallToolParams, DynamicToolsetCallToolParams)):
            payload = await self._call_tool(carried, params, lambda: self._do(params))
        else:

            async def act() -> Any:
                return await self._do(params)

            call_id = carried.call_id(self._name, params)
            declared = step(act, name=self._name, id=call_id, raises=_ERRORS)
            payload = await carried.run.step(declared)
        return self._operation.result_codec.load(payload)

    async def _do(self, params: ParamsT) -> object:
        # Anything inside the operation, such as a nested agent, is part of this step.
        with durable_unit_scope(), _working_as(None):
            try:
                return self._operation.result_codec.dump(await self._operation.handler(params))
            except exceptions.ModelHTTPError as error:
                seconds = getattr(error, "retry_after", None)
                if seconds is None or not self._waits_when_limited:
                    raise
                raise RetryAfter(seconds) from error

    async def _call_tool(
        self,
        carried: AgentInRun,
        params: ToolsetCallToolParams | DynamicToolsetCallToolParams,
        do: Callable[[], Awaitable[object]],
    ) -> object:
        """Run a tool call as an effect under the call's id, with the options of its function."""

        async def act(**_arguments: object) -> Any:
            return _kept(await do())

        options = _declared_by(params)
        if options.effect is not None and options.effect.effect_class is EffectClass.TRANSACTIONAL:
            raise BadInput(
                f"tool {params.name}",
                "a transactional effect needs a transaction, which an agent does not have; "
                "call it with run.step, or declare another class",
            )
        declared = tool(
            act,
            name=options.name or params.name,
            effect=options.effect,
            timeout=options.timeout,
            retry=options.retry,
            raises=(*options.raises, *_ERRORS),
            compensate=options.compensate,
        )
        call_id = carried.call_id(params.name, params)
        return _given(await carried.run.tool(declared, params.tool_args, id=call_id))


def _declared_by(params: ToolsetCallToolParams | DynamicToolsetCallToolParams) -> StepOptions:
    """The options declared on a tool's function; none for a tool that has no function of ours."""
    if isinstance(params, DynamicToolsetCallToolParams) or params.tool is None:
        return StepOptions()
    toolset: AbstractToolset[Any] = params.tool.toolset
    while isinstance(toolset, WrapperToolset):
        toolset = toolset.wrapped
    name = getattr(params.tool, "original_name", None) or params.name
    if not isinstance(toolset, FunctionToolset) or name not in toolset.tools:
        return StepOptions()
    return options_of(toolset.tools[name].function)


def _kept(payload: Any) -> Any:
    """A tool call's result as it is saved: plain, in the same form that `verify` and a review give."""
    if payload["kind"] == "tool_return" and not _is_otherwise(payload["result"]):
        return payload["result"]
    return {_OTHERWISE: payload}


def _given(kept: Any) -> object:
    return kept[_OTHERWISE] if _is_otherwise(kept) else {"kind": "tool_return", "result": kept}


def _is_otherwise(kept: Any) -> bool:
    return isinstance(kept, dict) and kept.keys() == {_OTHERWISE}


__all__ = ["HoldfastDurability", "durable"]
