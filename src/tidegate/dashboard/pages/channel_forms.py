"""Create a channel, and edit its hosts and its policy: checked and compared before it is saved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.queries.policies import check_document
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.queries.request_changes import RequestChange, describe_policy_changes
from tidegate.dashboard.components import Chip, Field, Link, Option
from tidegate.dashboard.forms import FormReader, Typed, fill, mark, send, typed_of
from tidegate.dashboard.layout import Layout, PageQuery, PageView, page_route, step_route
from tidegate.dashboard.pages.channels import ChannelPagePath, scope_of
from tidegate.dashboard.policy_text import describe_members, example_text, to_text
from tidegate.dashboard.protected_verbs import break_glass_fields, describe_asking
from tidegate.dashboard.view_models import FormPage, PlanFinding
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.access.steps import CREATE_CHANNEL, EDIT_CHANNEL
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.channels.policy import refuse
from tidegate.domain.channels.policy_document import read_policy
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.packages.rows import PACKAGES
from tidegate.errors import TidegateError
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import (
    Request,
    Response,
    requires_somewhere,
    requires_step,
)

POLICY_CHARS_MAX = 100_000
PACKAGES_MAX = 200
FAULT = Chip("cross", "bad", "Fault")
WARNING = Chip("warning", "warn", "Warning")
NOTE = Chip("info", "info", "Note")
SUBMITS = (
    Option("check", "Check and compare", "eye"),
    Option("example", "Insert the example", "pencil"),
)
PLACES = {
    "channel_exists": "channel",
    "invalid_selector": "selector",
    "selector_overlap": "selector",
    "malformed_policy": "policy",
    "malformed_channel": "channel",
    "package_not_found": "package",
}

PolicyText = Annotated[str, Meta(max_length=POLICY_CHARS_MAX)]


class NewChannelForm(Input, frozen=True, kw_only=True):
    channel: Typed
    package: Typed
    selector: Typed
    policy: PolicyText = ""
    do: Typed = "save"


class EditChannelForm(Input, frozen=True, kw_only=True):
    selector: Typed
    policy: PolicyText
    reason: Annotated[str, Meta(max_length=1_024)] = ""  # of the request, if it is protected
    do: Typed = "save"


def scope_of_new(request: Request[Nothing, PageQuery, NewChannelForm]) -> str:
    return channel_scope(request.body.channel.strip())


# ── create ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ChannelForms:
    """The forms of channels."""

    reads: Reads
    fleet_reader: FleetReader

    def new(self, request: Request[Any, Any, Any]) -> FormPage:
        packages = self.reads.range(PACKAGES, limit=PACKAGES_MAX)
        names = sorted(
            item.row.package.removeprefix(f"{DEFAULT_REPOSITORY}/")
            for item in packages
            if request.principal.may(
                Verb.READ, repository_scope(item.row.package.partition("/")[0])
            )
        )
        return FormPage(
            title="New channel",
            text="A channel carries one package to the hosts that match a selector.",
            action="/new/channel",
            back="/channels",
            fields=(
                Field(
                    name="channel",
                    label="Name",
                    required=True,
                    placeholder="stable",
                    hint="Small letters, digits and dashes. It cannot be changed later.",
                ),
                Field(
                    name="package",
                    label="Package",
                    required=True,
                    placeholder="web",
                    options=tuple(Option(name, name) for name in names),
                ),
                Field(
                    name="selector",
                    label="Hosts",
                    required=True,
                    placeholder="env=prod,app=web",
                    hint="A label selector. A host is in one channel of a package at most.",
                ),
                Field(
                    name="policy",
                    label="Rollout policy",
                    kind="code",
                    value=example_text(),
                    hint="Empty: the default policy, which is this example.",
                ),
            ),
            submits=(Option("save", "Create", "check"), *SUBMITS),
            members=describe_members(),
        )

    def edit(self, request: Request[ChannelPagePath, Any, Any]) -> FormPage:
        """Raises: ChannelNotFound."""
        found = self.demand(request.path.channel)
        row = found.row
        reason: tuple[Field, ...] = ()
        if row.protection is not None:
            reason = (Field(name="reason", label="Reason", kind="long", placeholder="Why"),)
        return FormPage(
            title=f"Edit {row.channel}",
            text="Rollouts that are open keep their plan. The next one follows what you save.",
            action=f"/channels/{row.channel}/edit",
            back=f"/channels/{row.channel}",
            asks=describe_asking(row),
            version=found.version,
            fields=(
                Field(name="selector", label="Hosts", value=row.selector, required=True),
                Field(
                    name="policy",
                    label="Rollout policy",
                    kind="code",
                    value=to_text(row.policy),
                    required=True,
                ),
                *reason,
                *break_glass_fields(request.caller, row),
            ),
            submits=(Option("save", "Save", "check"), *SUBMITS),
            members=describe_members(),
        )

    def demand(self, channel: str) -> Found[Channel]:
        """Raises: ChannelNotFound."""
        return self.reads.demand(channel_key(channel), Channel, ChannelNotFound(channel))

    def check(self, form: FormPage, text: str, channel: str | None) -> FormPage:
        """The form with what there is to say about the policy, and what it would change."""
        try:
            document = read_document(text)
        except TidegateError as error:
            return replace(form, fields=mark(form.fields, error, PLACES))
        read, said, row = check_document(self.reads, self.fleet_reader, document, channel)
        findings = [
            PlanFinding(chip=chip, text=item.sentence)
            for chip, items in ((FAULT, said.faults), (WARNING, said.warnings), (NOTE, said.notes))
            for item in items
        ]
        compared: tuple[RequestChange, ...] = ()
        if row is not None and not said.faults:
            compared = tuple(describe_policy_changes(row.policy, read.policy))
        if said.faults:
            found = "It would be refused"
        elif row is None:
            found = "It can be used"
        else:
            count = len(compared)
            found = f"It would change {count} thing{'' if count == 1 else 's'}"
            found = found if count else "It changes nothing"
        return replace(
            form,
            found=found,
            findings=tuple(findings),
            changes=compared,
        )


def read_document(text: str) -> Any:
    """The JSON of a policy. Raises: InvalidRequest."""
    reader = FormReader()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reader.refuse("policy", f"is not JSON: {error}")
        reader.check()
        raise AssertionError("it was refused") from None


def read_text(text: str) -> ChannelPolicy:
    """The policy that a person wrote. Raises: InvalidRequest, MalformedPolicy."""
    read = read_policy(read_document(text))
    refuse(read.faults)
    return read.policy


def _page(form: FormPage, *crumbs: Link) -> PageView:
    return PageView(
        template="form.html",
        title=form.title,
        here="/channels",
        view=form,
        crumbs=(Link("Channels", "/channels"), *crumbs, Link(form.title)),
        still=True,
    )


def show_new(
    request: Request[Nothing, PageQuery, Nothing], forms: ChannelForms, layout: Layout
) -> Response:
    """The form of a new channel."""
    return layout.answer(request, _page(forms.new(request)))


def create(
    request: Request[Nothing, PageQuery, NewChannelForm],
    channels: ChannelOperations,
    forms: ChannelForms,
    layout: Layout,
) -> Response:
    """Create a channel, or check its policy first."""
    body = request.body
    form = forms.new(request)
    form = replace(form, fields=fill(form.fields, typed_of(request)))
    match body.do:
        case "check":
            return layout.answer(request, _page(forms.check(form, body.policy or "{}", None)))
        case "example":
            fields = fill(form.fields, {"policy": example_text()})
            return layout.answer(request, _page(replace(form, fields=fields)))

    def run() -> int:
        reader = FormReader()
        channel = reader.text("channel", body.channel)
        package = reader.text("package", body.package)
        selector = reader.text("selector", body.selector)
        reader.check()
        policy = read_text(body.policy) if body.policy.strip() else None
        return channels.create(
            request.caller, channel, package=package, selector=selector, policy=policy
        )

    return send(
        request,
        layout,
        run,
        back=f"/channels/{body.channel.strip()}",
        done="created",
        page=lambda error: _page(replace(form, fields=mark(form.fields, error, PLACES))),
    )


# ── edit ──────────────────────────────────────────────────────────────────────────────────────────


def show_edit(
    request: Request[ChannelPagePath, PageQuery, Nothing], forms: ChannelForms, layout: Layout
) -> Response:
    """The form of a channel's hosts and policy."""
    name = request.path.channel
    return layout.answer(request, _page(forms.edit(request), Link(name, f"/channels/{name}")))


def edit(
    request: Request[ChannelPagePath, PageQuery, EditChannelForm],
    channels: ChannelOperations,
    forms: ChannelForms,
    layout: Layout,
) -> Response:
    """Change the hosts or the policy of a channel, or check the policy first."""
    body, name = request.body, request.path.channel
    crumb = Link(name, f"/channels/{name}")
    form = forms.edit(request)
    form = replace(form, fields=fill(form.fields, typed_of(request)), version=request.version)
    match body.do:
        case "check":
            return layout.answer(request, _page(forms.check(form, body.policy, name), crumb))
        case "example":
            fields = fill(form.fields, {"policy": example_text()})
            return layout.answer(request, _page(replace(form, fields=fields), crumb))

    def run() -> int:
        reader = FormReader()
        selector = reader.text("selector", body.selector)
        reader.check()
        policy = read_text(body.policy)
        row = forms.demand(name).row
        is_same = selector == row.selector and policy == row.policy
        if is_same and row.protection is not None:
            reader.refuse("policy", "is as it is now, and so are the hosts: nothing to ask for")
            reader.check()
        return channels.edit(
            request.caller,
            name,
            selector=None if selector == row.selector else selector,
            policy=None if policy == row.policy else policy,
            reason=body.reason,
        )

    return send(
        request,
        layout,
        run,
        back=f"/channels/{name}",
        done="saved",
        page=lambda error: _page(replace(form, fields=mark(form.fields, error, PLACES)), crumb),
    )


ROUTES = (
    page_route("/new/channel", show_new, requires_somewhere(Verb.RELEASE)),
    page_route("/channels/{channel}/edit", show_edit, requires_step(EDIT_CHANNEL, scope_of)),
    step_route("/new/channel", create, CREATE_CHANNEL, scope_of_new),
    step_route("/channels/{channel}/edit", edit, EDIT_CHANNEL, scope_of),
)
