"""The forms of a repository: how many approvals it needs, and what protects it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta

from tidegate.control.operations.repositories import RepositoryOperations
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, forms as dashboard_forms, layout as dashboard_layout
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access import scopes, steps
from tidegate.domain.packages import names, refusals, rows, slices
from tidegate.errors import TidegateError
from tidegate.web import inputs, routing

HERE: Final = "/settings"
DEPLOYMENT: Final = "deployment"
PROTECT_PROPOSED: Final = "protect_proposed"
PLACES: Final = {
    "already_exists": "repository",
    "invalid_name": "repository",
    "quorum": "approvals",
}


class RepositoryPagePath(inputs.Input, frozen=True):
    repository: Annotated[str, Meta(min_length=1, max_length=names.LABEL_CHARS_MAX)]


class EditRepositoryForm(inputs.Input, frozen=True, kw_only=True):
    """The settings of a repository as texts. A box that is not checked is off."""

    approvals: dashboard_forms.Typed
    settings: dashboard_forms.Ticked = ()
    do: dashboard_forms.Typed = "save"


class NewRepositoryForm(EditRepositoryForm, frozen=True, kw_only=True):
    repository: dashboard_forms.Typed


def new_form() -> form_screens.FormPage:
    """The form of a new repository."""
    name = components.Field(
        name="repository",
        label="Name",
        required=True,
        placeholder="default",
        hint=f"Small letters, digits and dashes, at most {names.LABEL_CHARS_MAX}. It is part "
        "of the names of its revisions and cannot be changed.",
    )
    return form_screens.FormPage(
        title="New repository",
        text="A repository holds packages, and says how their revisions are approved.",
        action="/new/repository",
        back=HERE,
        fields=(name, *_fields()),
        submits=(components.Option("save", "Create", "check"),),
    )


@dataclass(frozen=True)
class RepositoryForms:
    """Builds the form of a repository before anything is typed."""

    reads: Reads

    def edit(self, name: str) -> form_screens.FormPage:
        """The form that edits a repository. Raises: RepositoryNotFound."""
        found = self.reads.demand(
            rows.repository_key(name), rows.Repository, refusals.RepositoryNotFound(name)
        )
        row = found.row
        ticked = (DEPLOYMENT,) * row.deployment + (PROTECT_PROPOSED,) * row.protect_proposed
        typed = {"approvals": str(row.quorum), "settings": ticked}
        return form_screens.FormPage(
            title=f"Edit {name}",
            text="Revisions that are already published stay as they are.",
            action=f"/repositories/{name}/edit",
            back=HERE,
            fields=dashboard_forms.fill(_fields(), typed),
            version=found.version,
            submits=(components.Option("save", "Save", "check"),),
        )


def _fields() -> tuple[components.Field, ...]:
    return (
        components.Field(
            name="approvals",
            label="Approvals that publish a revision",
            kind="number",
            required=True,
            value=str(slices.QUORUM_DEFAULT),
            hint=f"0 to {slices.QUORUM_MAX}. 0: the author can publish alone.",
        ),
        components.Field(
            name="settings",
            label="Protection",
            kind="many",
            options=(
                components.Option(
                    DEPLOYMENT,
                    "Hosts are deployed from it",
                    "A deletion needs two people. A new repository then protects proposals, too.",
                ),
                components.Option(
                    PROTECT_PROPOSED,
                    "Protect proposals",
                    "Withdraw or reject a proposal before you delete it.",
                ),
            ),
        ),
    )


def _page(form: form_screens.FormPage) -> dashboard_layout.PageView:
    return dashboard_forms.form_page(form, HERE, components.Link("Settings", HERE))


def _refused(form: form_screens.FormPage, error: TidegateError) -> dashboard_layout.PageView:
    return _page(dashboard_forms.mark(form, error, PLACES))


def _read_settings(reader: dashboard_forms.FormReader, body: EditRepositoryForm) -> int:
    """The number of approvals in the form. Raises: InvalidRequest: it could not be read."""
    quorum = reader.number("approvals", body.approvals, 0, slices.QUORUM_MAX)
    unknown = [item for item in body.settings if item not in (DEPLOYMENT, PROTECT_PROPOSED)]
    if unknown:
        reader.refuse("settings", f"has no {unknown[0][:80]!r}")
    reader.check()
    return quorum


def show_new_repository(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a new repository."""
    return layout.answer(request, _page(new_form()))


def create_repository(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewRepositoryForm],
    repositories: RepositoryOperations,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Create a repository."""
    body = request.body
    form = dashboard_forms.fill_typed(new_form(), request)

    def run() -> int:
        reader = dashboard_forms.FormReader()
        name = reader.text("repository", body.repository, most=names.LABEL_CHARS_MAX)
        quorum = _read_settings(reader, body)
        # Proposals of a deployment repository are protected by default. A box that is not
        # checked leaves the default.
        outcome = repositories.create(
            request.caller,
            name,
            quorum=quorum,
            deployment=DEPLOYMENT in body.settings,
            protect_proposed=True if PROTECT_PROPOSED in body.settings else None,
        )
        return outcome.position

    return dashboard_forms.send(
        request, layout, run, back=HERE, done="created", page=lambda error: _refused(form, error)
    )


def show_edit_repository(
    request: routing.Request[RepositoryPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    forms: RepositoryForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a repository."""
    return layout.answer(request, _page(forms.edit(request.path.repository)))


def edit_repository(
    request: routing.Request[RepositoryPagePath, dashboard_layout.PageQuery, EditRepositoryForm],
    repositories: RepositoryOperations,
    forms: RepositoryForms,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change how the revisions of a repository are approved."""
    body, name = request.body, request.path.repository
    form = dashboard_forms.fill_typed(forms.edit(name), request)

    def run() -> int:
        quorum = _read_settings(dashboard_forms.FormReader(), body)
        outcome = repositories.change(
            request.caller,
            name,
            quorum=quorum,
            deployment=DEPLOYMENT in body.settings,
            protect_proposed=PROTECT_PROPOSED in body.settings,
        )
        return outcome.position

    return dashboard_forms.send(
        request, layout, run, back=HERE, done="saved", page=lambda error: _refused(form, error)
    )


def _scope(request: routing.Request[RepositoryPagePath, Any, Any]) -> str:
    return scopes.repository_scope(request.path.repository)


_CREATE = routing.requires_step(steps.CREATE_REPOSITORY)
_CHANGE = routing.requires_step(steps.CHANGE_REPOSITORY, _scope)
ROUTES = (
    dashboard_layout.page_route("/new/repository", show_new_repository, _CREATE),
    dashboard_layout.step_route("/new/repository", create_repository, steps.CREATE_REPOSITORY),
    dashboard_layout.page_route("/repositories/{repository}/edit", show_edit_repository, _CHANGE),
    dashboard_layout.step_route(
        "/repositories/{repository}/edit", edit_repository, steps.CHANGE_REPOSITORY, _scope
    ),
)
