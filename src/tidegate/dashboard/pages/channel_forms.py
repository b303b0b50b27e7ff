"""Forms to create a channel and to edit its hosts and policy: check, compare, save."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, structs

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.queries import policies, request_changes
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import (
    components,
    forms as dashboard_forms,
    layout as dashboard_layout,
    policy_text,
    protected_verbs,
)
from tidegate.dashboard.pages.channels import ChannelPagePath, scope_of
from tidegate.dashboard.view_models import form_screens, plan_screens
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels import facts, policy_document, refusals, rows as channel_rows
from tidegate.domain.channels.policy import refuse
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.packages.rows import PACKAGES
from tidegate.errors import TidegateError
from tidegate.web import inputs, routing

POLICY_CHARS_MAX = 100_000
PACKAGES_MAX = 200
FAULT = components.Chip("cross", "bad", "Fault")
WARNING = components.Chip("warning", "warn", "Warning")
NOTE = components.Chip("info", "info", "Note")
SUBMITS = (
    components.Option("check", "Check and compare", "eye"),
    components.Option("example", "Insert the example", "pencil"),
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


class NewChannelForm(inputs.Input, frozen=True, kw_only=True):
    channel: dashboard_forms.Typed
    package: dashboard_forms.Typed
    selector: dashboard_forms.Typed
    policy: PolicyText = ""
    do: dashboard_forms.Typed = "save"


class EditChannelForm(inputs.Input, frozen=True, kw_only=True):
    selector: dashboard_forms.Typed
    policy: PolicyText
    # Of the request, if the channel is protected.
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    do: dashboard_forms.Typed = "save"


def scope_of_new(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewChannelForm],
) -> str:
    return scopes.channel_scope(request.body.channel.strip())


# ── create ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ChannelForms:
    """Builds the forms of channels."""

    reads: Reads
    fleet_reader: FleetReader
    clock: Clock

    def new(self, request: routing.Request[Any, Any, Any]) -> form_screens.FormPage:
        packages = self.reads.range(PACKAGES, limit=PACKAGES_MAX)
        names = sorted(
            item.row.package.removeprefix(f"{DEFAULT_REPOSITORY}/")
            for item in packages
            if request.principal.may(
                roles.Verb.READ, scopes.repository_scope(item.row.package.partition("/")[0])
            )
        )
        return form_screens.FormPage(
            title="New channel",
            text="A channel carries one package to the hosts that match a selector.",
            action="/new/channel",
            back="/channels",
            fields=(
                components.Field(
                    name="channel",
                    label="Name",
                    required=True,
                    placeholder="stable",
                    hint="Small letters, digits and dashes. It cannot be changed later.",
                ),
                components.Field(
                    name="package",
                    label="Package",
                    required=True,
                    placeholder="web",
                    options=tuple(components.Option(name, name) for name in names),
                ),
                components.Field(
                    name="selector",
                    label="Hosts",
                    required=True,
                    placeholder="env=prod,app=web",
                    hint="A label selector. A host is in one channel of a package at most.",
                ),
                components.Field(
                    name="policy",
                    label="Rollout policy",
                    kind="code",
                    value=policy_text.example_text(),
                    hint="Empty: the default policy, which is this example.",
                ),
            ),
            submits=(components.Option("save", "Create", "check"), *SUBMITS),
            members=policy_text.describe_members(),
        )

    def edit(self, request: routing.Request[ChannelPagePath, Any, Any]) -> form_screens.FormPage:
        """The form that edits a channel. Raises: ChannelNotFound."""
        found = self.demand(request.path.channel)
        row = found.row
        reason: tuple[components.Field, ...] = ()
        if row.protection is not None:
            reason = (
                components.Field(name="reason", label="Reason", kind="long", placeholder="Why"),
            )
        return form_screens.FormPage(
            title=f"Edit {row.channel}",
            text="Rollouts that are open keep their plan. The next one follows what you save.",
            action=f"/channels/{row.channel}/edit",
            back=f"/channels/{row.channel}",
            asks=protected_verbs.describe_asking(row),
            version=found.version,
            fields=(
                components.Field(name="selector", label="Hosts", value=row.selector, required=True),
                components.Field(
                    name="policy",
                    label="Rollout policy",
                    kind="code",
                    value=policy_text.to_text(row.policy),
                    required=True,
                ),
                *reason,
                *protected_verbs.break_glass_fields(request.caller, row),
            ),
            submits=(components.Option("save", "Save", "check"), *SUBMITS),
            members=policy_text.describe_members(),
        )

    def demand(self, channel: str) -> Found[channel_rows.Channel]:
        """Read the channel's row. Raises: ChannelNotFound."""
        return self.reads.demand(
            channel_rows.channel_key(channel),
            channel_rows.Channel,
            refusals.ChannelNotFound(channel),
        )

    def check(
        self, form: form_screens.FormPage, text: str, channel: str | None
    ) -> form_screens.FormPage:
        """Add the findings about the policy, and what it would change, to the form."""
        try:
            document = read_document(text)
        except TidegateError as error:
            return dashboard_forms.mark(form, error, PLACES)
        read, checked, row = policies.check_document(
            self.reads, self.fleet_reader, document, channel, now=self.clock()
        )
        findings = [
            plan_screens.PlanFinding(chip=chip, text=item.sentence)
            for chip, items in (
                (FAULT, checked.faults),
                (WARNING, checked.warnings),
                (NOTE, checked.notes),
            )
            for item in items
        ]
        compared: tuple[request_changes.RequestChange, ...] = ()
        if row is not None and not checked.faults:
            compared = tuple(request_changes.describe_policy_changes(row.policy, read.policy))
        if checked.faults:
            found = "It would be refused"
        elif row is None:
            found = "It can be used"
        else:
            count = len(compared)
            found = f"It would change {count} thing{'' if count == 1 else 's'}"
            found = found if count else "It changes nothing"
        return structs.replace(form, found=found, findings=tuple(findings), changes=compared)


def read_document(text: str) -> Any:
    """Parse the JSON of a policy. Raises: InvalidRequest."""
    reader = dashboard_forms.FormReader()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reader.refuse("policy", f"is not JSON: {error}")
        reader.check()
        raise AssertionError("it was refused") from None


def read_text(text: str) -> facts.ChannelPolicy:
    """Parse the policy that a person wrote. Raises: InvalidRequest, MalformedPolicy."""
    read = policy_document.read_policy(read_document(text))
    refuse(read.faults)
    return read.policy


def _page(form: form_screens.FormPage, *crumbs: components.Link) -> dashboard_layout.PageView:
    channels = components.Link("Channels", "/channels")
    return dashboard_forms.form_page(form, "/channels", channels, *crumbs)


def show_new(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    forms: ChannelForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a new channel."""
    return layout.answer(request, _page(forms.new(request)))


def create(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewChannelForm],
    channels: ChannelOperations,
    forms: ChannelForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Create a channel, or check its policy first."""
    body = request.body
    form = dashboard_forms.fill_typed(forms.new(request), request)
    match body.do:
        case "check":
            return layout.answer(request, _page(forms.check(form, body.policy or "{}", None)))
        case "example":
            fields = dashboard_forms.fill(form.fields, {"policy": policy_text.example_text()})
            return layout.answer(request, _page(structs.replace(form, fields=fields)))

    def run() -> int:
        reader = dashboard_forms.FormReader()
        channel = reader.text("channel", body.channel)
        package = reader.text("package", body.package)
        selector = reader.text("selector", body.selector)
        reader.check()
        policy = read_text(body.policy) if body.policy.strip() else None
        return channels.create(
            request.caller, channel, package=package, selector=selector, policy=policy
        )

    return dashboard_forms.send(
        request,
        layout,
        run,
        back=f"/channels/{body.channel.strip()}",
        done="created",
        page=lambda error: _page(dashboard_forms.mark(form, error, PLACES)),
    )


# ── edit ──────────────────────────────────────────────────────────────────────────────────────────


def show_edit(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    forms: ChannelForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a channel's hosts and policy."""
    name = request.path.channel
    return layout.answer(
        request, _page(forms.edit(request), components.Link(name, f"/channels/{name}"))
    )


def edit(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, EditChannelForm],
    channels: ChannelOperations,
    forms: ChannelForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change the hosts or the policy of a channel, or check the policy first."""
    body, name = request.body, request.path.channel
    crumb = components.Link(name, f"/channels/{name}")
    form = dashboard_forms.fill_typed(forms.edit(request), request)
    match body.do:
        case "check":
            return layout.answer(request, _page(forms.check(form, body.policy, name), crumb))
        case "example":
            fields = dashboard_forms.fill(form.fields, {"policy": policy_text.example_text()})
            return layout.answer(request, _page(structs.replace(form, fields=fields), crumb))

    def run() -> int:
        reader = dashboard_forms.FormReader()
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

    return dashboard_forms.send(
        request,
        layout,
        run,
        back=f"/channels/{name}",
        done="saved",
        page=lambda error: _page(dashboard_forms.mark(form, error, PLACES), crumb),
    )


ROUTES = (
    dashboard_layout.page_route(
        "/new/channel", show_new, routing.requires_somewhere(roles.Verb.RELEASE)
    ),
    dashboard_layout.page_route(
        "/channels/{channel}/edit", show_edit, routing.requires_step(steps.EDIT_CHANNEL, scope_of)
    ),
    dashboard_layout.step_route("/new/channel", create, steps.CREATE_CHANNEL, scope_of_new),
    dashboard_layout.step_route("/channels/{channel}/edit", edit, steps.EDIT_CHANNEL, scope_of),
)
