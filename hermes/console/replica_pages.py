"""The pages about copies of partitions: who has them, and to change that after a preview."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from hermes.client.kafka_replicas import parse_brokers, parse_place
from hermes.config.topic import MOST_COPIES
from hermes.console.change_log import failures_logged, log_change
from hermes.console.forms import WHOLE, FieldError, Form, field_number
from hermes.console.page_request import (
    InputError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
    redirect,
)
from hermes.console.replica_changes import (
    ADD,
    CANCEL,
    COPIES,
    DRAIN,
    ELECT,
    KINDS,
    MOVE,
    UNCLEAN,
    ReplicaOrder,
    ReplicaPlan,
)
from hermes.console.replica_views import SHOWN, ReplicaView, replica_list
from hermes.console.sources import Sources
from hermes.console.viewer import Viewer
from hermes.console.visibility import visible_replicas
from hermes.errors import HermesError, UnknownTopicError
from hermes.quoting import shell_line

_T = TypeVar("_T")

_MOST_SHOWN: Final = 200
_MOST_BROKER: Final = 2**31 - 1
_CONFIRM: Final = "confirm"
_FIELDS: Final = ("do", "partition", "to", "topics", "copies", "broker")
#: The field without which there is nothing to preview yet.
_LAST_FIELD: Final = {MOVE: "to", COPIES: "copies", DRAIN: "broker", ADD: "broker"}


def _replicas(sources: Sources, request: PageRequest) -> PageResponse:
    broker = request.text("broker")
    broker_id = request.number("broker", 0, most=_MOST_BROKER) if broker else None
    view, error, is_embedded = ReplicaView(()), "", False
    try:
        view = visible_replicas(sources.replicas.view(), request.viewer)
        is_embedded = bool(view.rows) and sources.replicas.is_embedded()
    except HermesError as failure:
        error = str(failure)
    shown = request.text("show", SHOWN[0])
    found = replica_list(view, request.text("q"), shown, broker_id, request.number("page", 1))
    return sources.page(
        request,
        "replicas",
        "replicas.html",
        view=view,
        list=sources.replicas.measured(found),
        error=error,
        is_embedded=is_embedded,
        kinds=SHOWN,
        form=Form(),
        command=_list_command(sources, request),
    )


def _list_command(sources: Sources, request: PageRequest) -> str:
    broker = _some_broker(sources)
    problems = ["--problems"] if request.text("show", SHOWN[0]) != SHOWN[0] else []
    return shell_line(["hermes", "replicas", "list", "-b", broker, *problems]) if broker else ""


def _some_broker(sources: Sources) -> str:
    brokers = sources.sampler.view().brokers
    return next((str(each.address) for each in brokers if each.metadata is not None), "")


# -- changes ------------------------------------------------------------------------------------


def _preview(sources: Sources, request: PageRequest) -> PageResponse:
    """What a change would do: changes nothing, so it is a GET."""
    values = {each: request.text(each) for each in _FIELDS}
    if _LAST_FIELD.get(values["do"], "do") not in request.query:  # a link to the form
        return _page(sources, request, Form(values))
    try:
        plan = sources.replica_changes.plan(_order(values, request.viewer))
    except HermesError as error:
        return _page(sources, request, Form(values, _placed(values["do"], error)))
    return _page(sources, request, Form(values), plan)


def _act(sources: Sources, request: PageRequest) -> PageResponse:
    values = {each: request.form.get(each, "").strip() for each in _FIELDS}
    said = ", ".join(f"{name}: {each}" for name, each in values.items() if each)
    plan: ReplicaPlan | None = None
    try:
        order = _order(values, request.viewer)
        if order.kind == UNCLEAN:
            plan = sources.replica_changes.plan(order)
            if request.form.get(_CONFIRM, "") != values["partition"]:
                raise FieldError(_CONFIRM, "This is not the partition’s name.")  # noqa: RUF001
        with failures_logged(request, f"change who has copies: {said}"):
            refused = sources.replica_changes.carry_out(order, request.form.get("plan", ""))
    except HermesError as error:
        placed = _placed(values["do"], error)
        return _page(sources, request, Form(values, placed), plan if _CONFIRM in placed else None)
    log_change(request, f"changed who has copies: {said}")
    if refused:
        more = f" (and {len(refused) - 5} more)" if len(refused) > 5 else ""
        text = f"Refused: {'; '.join(refused[:5])}{more}. The others have begun."
        return _page(sources, request, Form(values, {WHOLE: text}))
    done = "elected" if order.kind in (ELECT, UNCLEAN) else "replicas"
    return redirect(f"/replicas?done={done}")


def _page(
    sources: Sources, request: PageRequest, form: Form, plan: ReplicaPlan | None = None
) -> PageResponse:
    shown = [
        each for each in (plan.changes if plan else ()) if request.viewer.sees_topic(each.place[0])
    ]
    broker = _some_broker(sources)
    command = shell_line(plan.command(broker)) if plan and broker else ""
    return sources.form_page(
        request,
        "replicas",
        "replica_change.html",
        form,
        plan=plan,
        shown=shown[:_MOST_SHOWN],
        command=command,
        most_copies=MOST_COPIES,
    )


def _order(values: Mapping[str, str], viewer: Viewer) -> ReplicaOrder:
    kind = values["do"]
    if kind not in KINDS:
        raise InputError(f"do: expected one of {', '.join(KINDS)}")
    order = ReplicaOrder(kind)
    if kind in (UNCLEAN, MOVE, CANCEL) or (kind == ELECT and values["partition"]):
        order = replace(order, places=(_read(parse_place, values, "partition"),))
    if kind == MOVE:
        order = replace(order, target=_read(parse_brokers, values, "to"))
    if kind == COPIES:
        names = tuple(dict.fromkeys(values["topics"].replace(",", " ").split()))
        if not names:
            raise FieldError("topics", "Which topics?")
        count = field_number("copies", values["copies"], 1, MOST_COPIES)
        order = replace(order, topics=names, count=count)
    if kind in (DRAIN, ADD):
        broker_id = field_number("broker", values["broker"], 0, _MOST_BROKER)
        order = replace(order, broker_id=broker_id)
    for topic in (*order.topics, *(topic for topic, _ in order.places)):
        if not viewer.sees_topic(topic):
            raise UnknownTopicError(f"There is no topic {topic!r}.")
    return order


def _read(parse: Callable[[str], _T], values: Mapping[str, str], name: str) -> _T:
    try:
        return parse(values[name])
    except ValueError as error:
        raise FieldError(name, str(error)) from error


def _placed(kind: str, error: HermesError) -> dict[str, str]:
    if isinstance(error, FieldError):
        return {error.name: str(error)}
    if isinstance(error, UnknownTopicError):
        return {"topics" if kind == COPIES else "partition": str(error)}
    return {_LAST_FIELD.get(kind, WHOLE): str(error)}


ROUTES: Final = (
    PageRoute("GET", ("replicas",), _replicas, PagePermission.CLUSTER),
    PageRoute("GET", ("replicas", "change"), _preview, PagePermission.ADMIN, acts=True),
    PageRoute("POST", ("replicas", "change"), _act, PagePermission.ADMIN, acts=True),
)
