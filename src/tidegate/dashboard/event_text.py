"""Events in words: the text, glyph and tone of each fact type.

A type that is not listed is shown under its own name, so that no event is ever hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from tidegate.control.queries.log_reader import LogReader
from tidegate.dashboard import components, html as dashboard_html, state_labels
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.rollouts.states import CLEARABLE
from tidegate.domain.times import describe_end
from tidegate.errors import InvalidInput
from tidegate.kernel.model import Event

Names = Callable[[str], str]
Line = tuple[str, str, str, str]  # icon, tone, title, details

PAYLOAD_CHARS_MAX = 20_000
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Glyph and tone of types whose own name is text enough.
_LOOKS: Final[dict[str, tuple[str, str]]] = {
    "DispatchReserved": ("dots", "idle"),
    "DispatchCancelled": ("cross", "gone"),
    "DispatchAck": ("check", "info"),
    "DispatchReject": ("cross", "bad"),
    "ActivationStarted": ("gear", "info"),
    "ActivationCompleted": ("gear", "info"),
    "ActivationFailed": ("cross", "bad"),
    "ActivationDeferred": ("moon", "calm"),
    "ProbeTopologyDeclared": ("eye", "idle"),
    "ProbeObservedFirst": ("eye", "idle"),
    "ProbeFailureFirst": ("eye", "warn"),
    "Failed": ("cross", "bad"),
    "RollbackComplete": ("undo", "back"),
    "RollbackFailed": ("undo", "bad"),
    "Converged": ("check", "good"),
    "DeadlineExpired": ("clock", "bad"),
    "HostRegressed": ("warning", "warn"),
    "HostSkipped": ("skip", "gone"),
    "HostSilent": ("silent", "warn"),
    "HostHeard": ("hosts", "good"),
    "HostEnrolled": ("hosts", "good"),
    "JoinTokenCreated": ("key", "info"),
    "JoinTokenDeleted": ("key", "gone"),
    "HostFactsNoted": ("hosts", "idle"),
    "HostRevoked": ("key", "bad"),
    "HostRetired": ("moon", "gone"),
    "RolloutHalted": ("stop", "bad"),
    "SuccessorOpened": ("arrow", "gone"),
    "RolloutTerminal": ("check", "good"),
    "QuarantineLifted": ("ban", "good"),
    "FreezeStarted": ("snow", "calm"),
    "WindowSet": ("clock", "calm"),
    "WindowDeleted": ("clock", "good"),
    "FreezeEnded": ("snow", "good"),
    "SignInFailed": ("key", "warn"),
    "IntentRequested": ("outbox", "info"),
    "AttemptFailed": ("outbox", "warn"),
    "AttemptSucceeded": ("outbox", "good"),
    "IntentDied": ("outbox", "bad"),
    "IntentRedriven": ("retry", "info"),
    "NoticeQueued": ("bell", "info"),
    "NoticeDelivered": ("bell", "good"),
    "NoticeFailed": ("bell", "warn"),
    "NoticeDied": ("bell", "bad"),
    "NoticeSkipped": ("bell", "gone"),
    "SubscriptionCreated": ("bell", "good"),
    "SubscriptionEdited": ("bell", "info"),
    "SubscriptionDeleted": ("bell", "gone"),
    "SubscriptionDisabled": ("bell", "bad"),
    "DriftDetected": ("warning", "warn"),
    "DriftRepaired": ("check", "good"),
}


def describe(log: LogReader, event: Event, people: Names) -> components.TimelineEntry:
    """Describe an event as a line of a timeline."""
    icon, tone, title, sub = line(log, event, people)
    return components.TimelineEntry(icon, tone, title, sub, event.at, event.position)


def describe_all(
    log: LogReader, events: Iterable[Event], people: Names
) -> tuple[components.TimelineEntry, ...]:
    """Describe events as a timeline, newest first."""
    return tuple(describe(log, event, people) for event in reversed([*events]))


def is_news(log: LogReader, event: Event) -> bool:
    """Whether a timeline needs the event. Of the states of a rollout it needs only stops, because
    other events report that it was opened, started a wave or ended.
    """
    if event.type != "RolloutTransitioned":
        return True
    try:
        fact: Any = log.value(event)
    except InvalidInput:
        return True
    return fact.to in CLEARABLE


def line(log: LogReader, event: Event, people: Names) -> Line:
    """The text of an event. One that this version cannot decode is shown under its name."""
    try:
        fact: Any = log.value(event)
    except InvalidInput:
        return "help", "gone", split_words(event.type), "this version cannot read it"
    found = (
        _rollout(fact, event.type, people)
        or _host(fact, event.type)
        or _channel(fact, event.type, people)
        or _revision(fact, event.type, people)
        or _account(fact, event.type, people)
        or _intent(fact, event.type)
    )
    return found or _other(fact, event.type, people)


def split_words(name: str) -> str:
    """``RevisionProposed`` → ``Revision proposed``."""
    return _WORDS.sub(" ", name).capitalize()


def payload(event: Event) -> str:
    """The fact as it is in the log, formatted as JSON."""
    text = msgspec.json.format(event.body, indent=2).decode()
    return text if len(text) <= PAYLOAD_CHARS_MAX else text[:PAYLOAD_CHARS_MAX] + "\n…"


def _rollout(fact: Any, type: str, people: Names) -> Line | None:
    match type:
        case "RolloutOpened":
            hosts = sum(wave.hosts for wave in fact.waves)
            who = f" by {people(fact.operator)}" if fact.operator else ""
            if fact.automatic:
                who = f" by {fact.automatic}, which {people(fact.operator)} switched on"
            waves = f"{len(fact.waves)} wave{'' if len(fact.waves) == 1 else 's'}"
            text = f"{waves}, {hosts:,} host{'' if hosts == 1 else 's'}, to {fact.target_ref}"
            text += f": {fact.reason}" if fact.reason else ""
            return "rollouts", "info", f"{fact.rollout_id} was opened{who}", text
        case "RolloutTransitioned":
            chip = state_labels.ROLLOUTS[fact.to]
            return chip.icon, chip.tone, f"{fact.rollout_id}: {chip.word.lower()}", chip.title
        case "WaveAdvanced" if fact.forced:
            text = f"{people(fact.operator)} waited for no wave: {fact.reason}"
            return "wave", "warn", f"Wave {fact.to_wave + 1} of {fact.rollout_id} was forced", text
        case "WaveContinued":
            text = f"by {people(fact.operator)}" + (f": {fact.reason}" if fact.reason else "")
            return "wave", "info", f"Wave {fact.wave + 1} of {fact.rollout_id} was continued", text
        case "WaveSkipped":
            text = f"by {people(fact.operator)}: {fact.reason}"
            return "wave", "warn", f"Wave {fact.wave + 1} of {fact.rollout_id} was skipped", text
        case "WaveAdvanced":
            text = f"wave {fact.from_wave + 1} and those before it are done"
            return "wave", "info", f"Wave {fact.to_wave + 1} of {fact.rollout_id} began", text
        case "RolloutHalted":
            return "stop", "bad", f"{fact.rollout_id} was halted", f"{fact.host_id}: {fact.reason}"
        case "GateOverridden":
            what = f"{fact.gate} for {fact.rollout_id}{describe_end(fact.until)}"
            return "warning", "warn", f"{people(fact.operator)} overrode {what}", fact.reason
        case "RolloutTerminal":
            return "check", "good", f"{fact.rollout_id} completed", fact.reason
        case "RolloutConcluded":
            chip = state_labels.OUTCOMES[fact.outcome]
            title = f"{fact.rollout_id}: {chip.word.lower()}"
            done, hosts = fact.counts.converged, fact.counts.hosts
            runs = f"host{'' if hosts == 1 else 's'} run{'s' if done == 1 else ''}"
            text = f"{done:,} of {hosts:,} {runs} {fact.target_ref}"
            return chip.icon, chip.tone, title, text
        case "SuccessorOpened":
            after = f"{fact.successor_rollout_id} took over"
            return "arrow", "gone", f"{fact.superseded_rollout_id} was replaced", after
        case "RolloutPaused":
            return "pause", "warn", f"Paused by {people(fact.operator)}", fact.reason
        case "RolloutResumed":
            return "play", "info", f"Resumed by {people(fact.operator)}", fact.reason
        case "RolloutAborted":
            return "stop", "gone", f"Aborted by {people(fact.operator)}", fact.reason
        case "OperatorClearance":
            hosts = f" for {len(fact.hosts)} hosts" if fact.hosts else ""
            title = f"Cleared by {people(fact.operator)}: {fact.mode}{hosts}"
            return "check", "good", title, fact.reason
        case "GateChanged":
            if fact.blocked:
                return "pause", "warn", f"Gate {fact.gate} blocks", fact.reason
            return "check", "good", f"Gate {fact.gate} is open", fact.reason
    return None


def _host(fact: Any, type: str) -> Line | None:
    match type:
        case "HostStateChanged":
            chip = state_labels.HOSTS[fact.to]
            return chip.icon, chip.tone, f"{fact.host_id}: {chip.word.lower()}", chip.title
        case "ProbeResult":
            tone, word = ("good", "passes") if fact.status == "pass" else ("bad", "fails")
            text = fact.failure_reason or ""
            return "eye", tone, f"{fact.host_id}: probe {fact.probe_name} {word}", text
        case "Failed":
            lasted = dashboard_html.seconds(fact.sustained_duration_secs)
            text = f"{', '.join(fact.failing_probes)} for {lasted}"
            return "cross", "bad", f"{fact.host_id} failed", text
        case "RollbackComplete":
            text = f"runs {dashboard_html.short(fact.reverted_to_closure)} again"
            return "undo", "back", f"{fact.host_id} rolled back", text
        case "Converged":
            return (
                "check",
                "good",
                f"{fact.host_id} converged",
                dashboard_html.short(fact.current_closure),
            )
        case "DeadlineExpired":
            return (
                "clock",
                "bad",
                f"{fact.host_id} did not report before its {fact.deadline} deadline",
                "",
            )
        case "HostSkipped":
            return "skip", "gone", f"{fact.host_id} was skipped", fact.reason
    return None


_REQUESTS: Final[dict[str, tuple[str, str, str]]] = {
    "RequestMade": ("help", "info", "made"),
    "RequestApproved": ("check", "good", "approved"),
    "RequestExecuted": ("check", "good", "carried out"),
    "RequestRejected": ("cross", "bad", "rejected"),
    "RequestWithdrawn": ("undo", "gone", "withdrew"),
    "RequestReviewed": ("eye", "info", "reviewed"),
}


def _channel(fact: Any, type: str, people: Names) -> Line | None:
    if type in _REQUESTS:
        icon, tone, did = _REQUESTS[type]
        kind = f" ({fact.kind})" if type == "RequestMade" else ""
        title = f"{people(fact.by)} {did} request {fact.request_id} on {fact.channel}{kind}"
        return icon, tone, title, getattr(fact, "reason", "")
    match type:
        case "RequestExpired" | "RequestVoided":
            over = "expired" if type == "RequestExpired" else "is void"
            title = f"Request {fact.request_id} on {fact.channel} {over}"
            return "clock", "gone", title, getattr(fact, "reason", "")
        case "EmergencyUnreviewed":
            title = f"Nobody has reviewed request {fact.request_id} on {fact.channel} for 72 hours"
            return "warning", "bad", title, ""
        case "EmergencyUsed":
            title = f"{people(fact.by)} bypassed the approval on {fact.channel}: {fact.kind}"
            return "warning", "bad", title, fact.reason
        case "ChannelProtectionSet":
            word = "not protected any more" if fact.protection is None else "protected"
            return "key", "info", f"{fact.channel} is {word}", fact.reason
        case "ChannelCreated" | "ChannelEdited":
            word = "created" if type == "ChannelCreated" else "edited"
            title = f"Channel {fact.channel} was {word} by {people(fact.operator)}"
            return "channels", "info", title, fact.selector
        case "ChannelDeleted":
            title = f"Channel {fact.channel} was deleted by {people(fact.operator)}"
            return "channels", "gone", title, fact.reason
        case "ChannelHeld" | "ChannelUnheld":
            word = "held" if type == "ChannelHeld" else "released"
            title = f"{fact.channel} was {word} by {people(fact.operator)}"
            return "lock", "warn" if word == "held" else "good", title, fact.reason
        case "RollbackRungsChanged":
            targets = ", ".join(fact.added or fact.removed)
            word = "can go back to" if fact.added else "no longer keeps"
            return "channels", "gone", f"{fact.channel} {word} {targets}", ""
        case "QuarantineLifted":
            title = f"Quarantine lifted on {fact.channel} by {people(fact.operator)}"
            return "ban", "good", title, fact.reason
        case "ReleaseRegistered" | "ReleaseTransitioned":
            title = f"{fact.scope} is pinned to {fact.release_id}"
            why = f": {fact.reason}" if fact.reason else ""
            return "releases", "info", title, f"by {people(fact.by)}{why}"
    return None


def _revision(fact: Any, type: str, people: Names) -> Line | None:
    match type:
        case "RepositoryDeleted":
            title = f"Repository {fact.repository} was deleted by {people(fact.by)}"
            return "cross", "gone", title, fact.reason
        case "RevisionCreated":
            return "pencil", "idle", f"{fact.name} was drafted", f"by {people(fact.by)}"
        case "RevisionContentReplaced":
            content = fact.content
            files = dashboard_html.counted(content.file_count, "file")
            text = f"{files}, {dashboard_html.size(content.total_bytes)}"
            return (
                "file",
                "info",
                f"Content of {fact.name} changed",
                f"{text}, by {people(fact.by)}",
            )
        case "RevisionProposed":
            return "clock", "warn", f"{fact.name} was proposed", f"by {people(fact.by)}"
        case "RevisionApproved":
            by = f"{fact.name} was approved by {people(fact.by)}"
            return "check", "good", by, fact.reason or dashboard_html.short(fact.digest)
        case "RevisionPublished":
            package = fact.package.rpartition("/")[2]
            return "check", "good", f"{package} revision {fact.number} was published", fact.name
        case "ProposalRejected":
            by = f"{fact.name} was rejected by {people(fact.by)}"
            return "cross", "bad", by, fact.reason
        case "ProposalWithdrawn":
            return "undo", "idle", f"{fact.name} was withdrawn", f"by {people(fact.by)}"
    return None


def _account(fact: Any, type: str, people: Names) -> Line | None:
    match type:
        case "RoleGranted" | "RoleRevoked":
            word = "granted to" if type == "RoleGranted" else "taken from"
            place = "" if fact.scope == EVERYWHERE else f"on {fact.scope}, "
            title = f"Role {fact.role} was {word} {people(fact.user_id)}"
            return "key", "info", title, f"{place}by {people(fact.by)}"
        case "UserAdded" | "UserEnabled" | "UserDisabled":
            word = type.removeprefix("User").lower()
            title = f"User {people(fact.user_id)} was {word}"
            return "user", "info", title, f"by {people(fact.by)}"
        case "TokenCreated" | "TokenRevoked":
            word = type.removeprefix("Token").lower()
            title = f"A token of {people(fact.user_id)} was {word}"
            return "key", "info", title, f"by {people(fact.by)}"
    return None


def _intent(fact: Any, type: str) -> Line | None:
    if type not in ("IntentRequested", "AttemptSucceeded", "AttemptFailed", "IntentDied"):
        return None
    operation, release = fact.intent_id.rpartition("/")[2].split("#")[1:3]
    what = f"{operation} of {release} on {fact.scope}"
    icon, tone = _LOOKS[type]
    match type:
        case "AttemptSucceeded":
            return icon, tone, f"{what} was delivered", f"attempt {fact.attempt}"
        case "AttemptFailed":
            return icon, tone, f"{what} failed", f"attempt {fact.attempt}: {fact.error}"
        case "IntentDied":
            attempts = dashboard_html.counted(fact.attempts, "attempt")
            return icon, tone, f"{what} was given up", f"after {attempts}: {fact.reason}"
    return icon, tone, f"{what} was requested", ""


def _other(fact: msgspec.Struct, type: str, people: Names) -> Line:
    """The name of a type, and the first of these members that it has."""
    icon, tone = _LOOKS.get(type, ("ring", "idle"))
    about = ""
    for name in ("host_id", "rollout_id", "channel", "scope", "name", "user_id", "package"):
        value = getattr(fact, name, "")
        if isinstance(value, str) and value:
            about = people(value) if name == "user_id" else value
            break
    return icon, tone, split_words(type), about
